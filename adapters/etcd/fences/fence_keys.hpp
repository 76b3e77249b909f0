#pragma once

// FenceKeys: the names of what a guard keeps in an etcd namespace, and how a fence is written there.
//
//   PREFIX/floor             'fence init' writes it: a number. A namespace without it is not initialised
//   PREFIX/fence/RESOURCE    'TOKEN SEQUENCE|- open|closed HOLDER'
//   PREFIX/highest           see fence_mark.hpp: a number
//   PREFIX/offset            what the token source adds to a revision; see token_source.hpp
//   PREFIX/rebased/RESOURCE/TIME   what was set by hand, the operator and the time
//
// A text has one spelling only, so that a fence that is remembered as a value can be compared with the text
// in the store. Values; thread-safe.

#include <optional>
#include <string>
#include <string_view>

#include "adapters/etcd/client.hpp"
#include "guard/judge.hpp"
#include "guard/support/fence_text.hpp"

namespace fenceguard::etcd {

class FenceKeys {
 public:
  // prefix: Address::prefix.
  explicit FenceKeys(const std::string& prefix) : own_{prefix + "/"}, own_end_{end_of_prefix(own_)} {}

  [[nodiscard]] std::string floor() const { return own_ + "floor"; }
  [[nodiscard]] std::string highest() const { return own_ + "highest"; }
  [[nodiscard]] std::string offset() const { return own_ + "offset"; }
  [[nodiscard]] std::string fences() const { return own_ + "fence/"; }  // what all of them start with
  [[nodiscard]] std::string fence(const Resource& resource) const { return fences() + resource.name(); }
  [[nodiscard]] std::string rebased(const Resource& resource, std::string_view time) const {
    return own_ + "rebased/" + resource.name() + "/" + std::string{time};
  }
  // A key that never exists: removing it changes nothing, and yet makes a transaction one that is decided in
  // the log of the cluster.
  [[nodiscard]] std::string nothing() const { return own_ + "nothing"; }

  // True where op names, or its range holds, a key that is ours.
  [[nodiscard]] bool is_reserved(const Op& op) const;

 private:
  std::string own_;
  std::string own_end_;
};

// The fence or the floor that a range of one key found; nothing if there is no such key. Throws Unavailable
// where it is damaged, and says what to do.
[[nodiscard]] std::optional<Fence> fence_in(const OpAnswer& answer, const Resource& resource);
[[nodiscard]] std::optional<std::int64_t> floor_in(const OpAnswer& answer);

}  // namespace fenceguard::etcd
