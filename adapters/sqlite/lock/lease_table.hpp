#pragma once

// LeaseTable: the lease recipe in SQLite. A lease is a row with an expiry; a token is drawn from one counter
// of the file in the transaction that grants. All within the caller's write transaction, which orders grants.
//
// A row's time is that of the machine, whatever time namespace a process is in: each takes its namespace's
// offset off what its clock shows. Were the namespace a part of the row's key, as the boot is, a lease of
// another one would count as one from an earlier boot, and be granted again.
//
// Not thread-safe.

#include <chrono>
#include <optional>
#include <string>

#include "adapters/sqlite/file/database.hpp"
#include "guard/source/lease_lister.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::sqlite {

class LeaseTable {
 public:
  // Throws Unavailable where the machine's boot or the namespace's offset cannot be read.
  explicit LeaseTable(sqlite3* connection);

  [[nodiscard]] std::variant<Grant, LockBusy> acquire(const Resource& resource, const Holder& holder,
                                                      std::chrono::milliseconds ttl);
  [[nodiscard]] Renewal renew(const Claim& claim, std::chrono::milliseconds ttl);
  Release release(const Claim& claim);
  Release end(const Resource& resource);
  [[nodiscard]] std::optional<LeaseRecord> find(const Resource& resource);
  // A part of a page: looks at no more than rows_at_once rows, so that no other call waits long for it. The
  // rows of expired leases that it meets are removed, so that no later listing passes over them again.
  // next: where to go on for the rest of the page; empty: it is whole.
  struct Part {
    LeasePage page;
    std::string next;
  };
  [[nodiscard]] Part list(const FenceListing& listing);
  static constexpr std::int64_t rows_at_once = 1'000;
  void raise(Token mark);
  [[nodiscard]] Token draw();
  [[nodiscard]] Token lowest_live();
  // The last token drawn; 0 if none ever was.
  [[nodiscard]] std::int64_t last_drawn() { return counter(); }

 private:
  // Milliseconds of the machine's clock since boot.
  [[nodiscard]] std::int64_t now_ms() const;
  void store(const Claim& claim, std::chrono::milliseconds ttl);
  [[nodiscard]] std::int64_t counter();
  void store_counter(std::int64_t last);

  std::string boot_id_;
  std::chrono::nanoseconds clock_offset_;  // of the process's time namespace
  Statement find_;
  Statement store_;
  Statement remove_;
  Statement lowest_;
  Statement list_;
  Statement load_counter_;
  Statement store_counter_;
};

}  // namespace fenceguard::sqlite
