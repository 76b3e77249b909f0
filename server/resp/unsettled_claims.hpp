#pragma once

// UnsettledClaims: the claims under which writes are under way whose client is gone. It may come back on
// another connection and write again under the same claim: that write waits, or the earlier one could take
// effect after it.
//
// Thread safety: all calls may be made from any thread.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "guard/claim.hpp"

namespace fenceguard::resp {

class UnsettledClaims {
 public:
  // Database, resource, token.
  using Key = std::tuple<int, std::string, std::int64_t>;

  // As often as remove() is called for it.
  void add(const std::vector<Key>& keys) {
    const std::lock_guard lock{mutex_};
    keys_.insert(keys.begin(), keys.end());
    count_ = keys_.size();
  }
  void remove(const std::vector<Key>& keys) {
    const std::lock_guard lock{mutex_};
    for (const auto& key : keys)
      if (const auto found = keys_.find(key); found != keys_.end()) keys_.erase(found);
    count_ = keys_.size();
  }
  // but: the caller's own, which are not counted.
  [[nodiscard]] bool contains(int database, const Claim& claim, const std::vector<Key>& but) const {
    if (count_ == 0) return false;
    const Key key{database, claim.resource.name(), claim.token.value()};
    const std::lock_guard lock{mutex_};
    return keys_.count(key) > static_cast<std::size_t>(std::count(but.begin(), but.end(), key));
  }

 private:
  std::atomic<std::size_t> count_{0};  // of keys_
  mutable std::mutex mutex_;
  std::multiset<Key> keys_;
};

}  // namespace fenceguard::resp
