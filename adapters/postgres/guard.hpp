#pragma once

// The fence in a service's own PostgreSQL database: judged and recorded in the transaction that writes, so
// that both stand or fall with its commit. Install it once per database: 'fenceguard sql postgres | psql'.
//
//   pqxx::work tx{connection};                                       // your own transaction
//   Ruling ruling = postgres::admit_in(tx, lease->claim());
//   if (ruling.verdict == Verdict::admitted) { tx.exec(sql); tx.commit(); }
//
// Thread safety: that of the connection.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <pqxx/pqxx>
#include <span>
#include <vector>

#include "guard/guard.hpp"

namespace fenceguard::postgres {

// How an advance treats older transactions that are still open, and what it takes for absurd.
struct AdmitOptions {
  std::optional<std::chrono::milliseconds> drain{};  // waits so long for them; left out: the database's, 5 s
  std::optional<bool> cut{};  // then ends their backends; left out: the database's, yes
  std::int64_t jump_max = 0;  // see is_implausible(); 0: no bound
};

// Judges the claim for the rest of tx. A refusal aborts tx, so that it cannot commit; so does a fault. Call
// it before the first savepoint. Throws InvalidInput for a subtransaction; Implausible; Unavailable (rolled
// back: older writes are still open, the snapshot is too old, the fences are not installed).
[[nodiscard]] Ruling admit_in(pqxx::dbtransaction& tx, const Claim& claim, const AdmitOptions& options = {});

// Several claims, all or none, locked in one order. Rulings in the order of the claims; if one is not
// admitted nothing is recorded, and tx is aborted.
[[nodiscard]] std::vector<Ruling> admit_all_in(pqxx::dbtransaction& tx, std::span<const Claim> claims);

// A guard on a connection of the caller's.
class Guard : public fenceguard::Guard {
 public:
  // REQUIRES: the connection outlives the guard, and is used by one thread at a time.
  explicit Guard(pqxx::connection& connection, AdmitOptions options = {})
      : connection_{connection}, options_{options} {}

  [[nodiscard]] Ruling advance(const Claim& claim) override;

  // {judge; apply} as one READ COMMITTED transaction: calls apply with it open if the claim is admitted, then
  // commits. What apply throws passes through after a rollback.
  [[nodiscard]] Ruling write(const Claim& claim, const std::function<void(pqxx::work&)>& apply);

 private:
  pqxx::connection& connection_;
  AdmitOptions options_;
};

}  // namespace fenceguard::postgres
