#pragma once

// Offset: what is added to every create revision to make a token, kept under PREFIX/offset: 0, and absent,
// until a raise lifts it. Every put of a lock key compares it in the same transaction, so that a raise
// excludes draws; here is what the process believes of it meanwhile.
//
// Thread-safe.

#include <cstdint>
#include <mutex>
#include <string>

#include "adapters/etcd/client.hpp"

namespace fenceguard::etcd {

class Offset {
 public:
  explicit Offset(const std::string& prefix) : key_{prefix + "/offset"} {}

  struct Known {
    std::int64_t value = 0;
    bool is_absent = true;
  };
  [[nodiscard]] Known known() const;

  // That it is as known; for a transaction.
  [[nodiscard]] Compare is(const Known& known) const;
  [[nodiscard]] Op get() const;
  [[nodiscard]] Op set(std::int64_t value) const;

  // Takes what a transaction found. Throws Unavailable where the key holds no number.
  Known learn(const OpAnswer& found);

 private:
  const std::string key_;
  mutable std::mutex mutex_;
  Known known_;
};

}  // namespace fenceguard::etcd
