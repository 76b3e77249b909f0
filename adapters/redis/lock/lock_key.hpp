#pragma once

// LockKey: the key of a resource's lock: our own, or the one that another library uses for it (?lock_key=).
//
// Values; thread-safe.

#include <optional>
#include <string>
#include <string_view>

#include "adapters/redis/keys.hpp"
#include "guard/resource.hpp"

namespace fenceguard::redis {

class LockKey {
 public:
  // pattern: PREFIX%sSUFFIX, where %s stands for the resource; empty: our own key. Throws InvalidInput for a
  // pattern without exactly one %s, and under Redis Cluster for one in which %s is not the hash tag.
  LockKey(Keys keys, const std::string& pattern, bool is_cluster);

  // Throws InvalidInput where the pattern makes a key of ours out of the resource, or under Redis Cluster
  // where the resource cannot be a hash tag.
  [[nodiscard]] std::string of(const Resource& resource) const;

  // What SCAN finds all of them by, or those of resources that start so.
  [[nodiscard]] std::string glob(const std::string& prefix = {}) const;
  // Whose lock the key is; nothing: no resource's.
  [[nodiscard]] std::optional<Resource> resource_of(std::string_view key) const;

  // The resource's key is another library's, too: such a pattern is registered with every grant and renewal.
  [[nodiscard]] bool is_shared() const noexcept { return is_shared_; }
  [[nodiscard]] std::string pattern() const { return before_ + "%s" + after_; }

 private:
  Keys keys_;
  bool is_cluster_;
  bool is_shared_;
  std::string before_;
  std::string after_;
};

}  // namespace fenceguard::redis
