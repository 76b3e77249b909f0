#pragma once

// Keys: the names of everything that fenceguard keeps in a Redis namespace. The hash tag of what belongs to a
// resource is the resource, so that under Redis Cluster it lies in the slot of the data.
//
//   {prefix}{RESOURCE}           the fence, a hash: token, holder, sequence, closed
//   {prefix}namespace            what 'fence init' writes, a hash: floor, highest
//   {prefix}resources            the resources that have a fence, a sorted set in their order
//   {prefix}lock:{RESOURCE}      the lock, a string: 'TOKEN HOLDER ENTRIES'
//   {prefix}counter              the counter of tokens, a hash: value, run
//   {prefix}counter:{RESOURCE}   the same under Redis Cluster, one per resource
//   {prefix}lock_keys            the patterns of locks that are kept elsewhere (?lock_key=), a set
//   {prefix}queue:{RESOURCE}     the waiters in their order (?fair=1), a sorted set
//   {prefix}waiters:{RESOURCE}   until when each of them is believed to live, a sorted set
//   {prefix}rebased:{RESOURCE}   what was set by hand, the operator and the time, a list
//   {prefix}quorum:…             what a node of a quorum keeps, see quorum/wire.hpp
//   {prefix}released:{RESOURCE}  the channel on which a release is told
//
// The prefix is 'fenceguard:' unless the URL says otherwise. Values; thread-safe.

#include <string>
#include <string_view>

#include "guard/resource.hpp"

namespace fenceguard::redis {

class Keys {
 public:
  explicit Keys(std::string prefix) : prefix_{std::move(prefix)} {}

  [[nodiscard]] std::string fence(const Resource& resource) const { return tagged("", resource); }
  [[nodiscard]] std::string lock(const Resource& resource) const { return tagged("lock:", resource); }
  [[nodiscard]] std::string counter() const { return prefix_ + "counter"; }
  [[nodiscard]] std::string counter(const Resource& resource) const { return tagged("counter:", resource); }
  [[nodiscard]] std::string queue(const Resource& resource) const { return tagged("queue:", resource); }
  [[nodiscard]] std::string waiters(const Resource& resource) const { return tagged("waiters:", resource); }
  [[nodiscard]] std::string rebased(const Resource& resource) const { return tagged("rebased:", resource); }
  [[nodiscard]] std::string released(const Resource& resource) const { return tagged("released:", resource); }
  [[nodiscard]] std::string name_space() const { return prefix_ + "namespace"; }
  [[nodiscard]] std::string resources() const { return prefix_ + "resources"; }
  [[nodiscard]] std::string lock_keys() const { return prefix_ + "lock_keys"; }

  [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }

  // True for a key that is ours, in this namespace or in the default one: no client's command may name it.
  [[nodiscard]] bool is_reserved(std::string_view key) const {
    return key.starts_with(prefix_) || key.starts_with("fenceguard:");
  }

 private:
  [[nodiscard]] std::string tagged(std::string_view kind, const Resource& resource) const {
    std::string key = prefix_;
    return key.append(kind).append("{").append(resource.name()).append("}");
  }

  std::string prefix_;
};

// The resource that a key of the data belongs to: its hash tag if it has one, else all of it (Redis Cluster
// specification, 'hash tags').
[[nodiscard]] inline std::string_view resource_of_key(std::string_view key) {
  const auto open = key.find('{');
  if (open == key.npos) return key;
  const auto close = key.find('}', open + 1);
  if (close == key.npos || close == open + 1) return key;
  return key.substr(open + 1, close - open - 1);
}

}  // namespace fenceguard::redis
