#pragma once

// Keys: the names of everything that fenceguard keeps in a Redis namespace. The hash tag of what belongs to a
// resource is the resource, so that under Redis Cluster it lies in the slot of the data.
//
//   {prefix}{RESOURCE}           the fence, a hash: token, holder, sequence, closed
//   {prefix}namespace            what 'fence init' writes, a hash: floor, highest
//   {prefix}floor                the floor once more, a string, for WATCH: the record changes with each
//   advance {prefix}resources            the resources that have a fence, a sorted set in their order
//   {prefix}lock:{RESOURCE}      the lock, a string: 'TOKEN HOLDER ENTRIES'
//   {prefix}counter              the counter of tokens, a hash: value, run
//   {prefix}counter:{RESOURCE}   the same under Redis Cluster, one per resource
//   {prefix}lock_keys            the patterns of locks that are kept elsewhere (?lock_key=), a set
//   {prefix}queue:{RESOURCE}     the waiters in their order (?fair=1), a sorted set
//   {prefix}waiters:{RESOURCE}   until when each of them is believed to live, a sorted set
//   {prefix}rebased:{RESOURCE}   what was set by hand, the operator and the time, a list
//   {prefix}rebased              likewise of the counter
//   {prefix}quorum:…             what a node of a quorum keeps, see quorum/wire.hpp
//   {prefix}released:{RESOURCE}  the channel on which a release is told
//
// The prefix is 'fenceguard:' unless the URL says otherwise. Values; thread-safe.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "guard/resource.hpp"

namespace fenceguard::redis {

// What stands before and behind the %s of ?lock_key=; nothing where that is not in it exactly once.
struct LockPattern {
  std::string before, after;

  [[nodiscard]] static std::optional<LockPattern> parse(std::string_view text) {
    const auto at = text.find("%s");
    if (at == text.npos || text.find("%s", at + 1) != text.npos) return std::nullopt;
    return LockPattern{std::string{text.substr(0, at)}, std::string{text.substr(at + 2)}};
  }
};

class Keys {
 public:
  // locks: of those that are kept elsewhere (?lock_key=), which are reserved then, too.
  explicit Keys(std::string prefix, std::optional<LockPattern> locks = {})
      : prefix_{std::move(prefix)}, locks_{std::move(locks)} {}

  [[nodiscard]] std::string fence(const Resource& resource) const { return tagged("", resource); }
  [[nodiscard]] std::string lock(const Resource& resource) const { return tagged("lock:", resource); }
  [[nodiscard]] std::string counter() const { return prefix_ + "counter"; }
  [[nodiscard]] std::string counter(const Resource& resource) const { return tagged("counter:", resource); }
  [[nodiscard]] std::string counter_rebased() const { return prefix_ + "rebased"; }
  [[nodiscard]] std::string queue(const Resource& resource) const { return tagged("queue:", resource); }
  [[nodiscard]] std::string waiters(const Resource& resource) const { return tagged("waiters:", resource); }
  [[nodiscard]] std::string rebased(const Resource& resource) const { return tagged("rebased:", resource); }
  [[nodiscard]] std::string released(const Resource& resource) const { return tagged("released:", resource); }
  [[nodiscard]] std::string name_space() const { return prefix_ + "namespace"; }
  // Changes with the floor alone, and is not judged by. Absent where an older version initialised.
  [[nodiscard]] std::string floor() const { return prefix_ + "floor"; }
  [[nodiscard]] std::string resources() const { return prefix_ + "resources"; }
  [[nodiscard]] std::string lock_keys() const { return prefix_ + "lock_keys"; }

  [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }

  // True for a key that is ours, in this namespace or in the default one: no client's command may name it.
  [[nodiscard]] bool is_reserved(std::string_view key) const {
    return key.starts_with(prefix_) || key.starts_with("fenceguard:") ||
           (locks_ && key.starts_with(locks_->before) && key.ends_with(locks_->after));
  }
  // True where a key that begins so could be.
  [[nodiscard]] bool could_be_reserved(std::string_view head) const {
    const auto could_begin = [head](std::string_view prefix) {
      const auto shared = std::min(prefix.size(), head.size());
      return prefix.substr(0, shared) == head.substr(0, shared);
    };
    return could_begin(prefix_) || could_begin("fenceguard:") || (locks_ && could_begin(locks_->before));
  }

 private:
  [[nodiscard]] std::string tagged(std::string_view kind, const Resource& resource) const {
    std::string key = prefix_;
    return key.append(kind).append("{").append(resource.name()).append("}");
  }

  std::string prefix_;
  std::optional<LockPattern> locks_;
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

// Why no key of the data belongs to a resource of this name, so that a claim to it would protect nothing, as
// a sentence; empty: one does.
[[nodiscard]] inline std::string objection_to_resource(std::string_view resource) {
  const auto other = resource_of_key(resource);
  if (other == resource) return {};
  return std::string{"no key of Redis belongs to '"}
      .append(resource)
      .append("', so nothing would be protected: name the resource '")
      .append(other)
      .append("', which is the hash tag of such a key");
}

}  // namespace fenceguard::redis
