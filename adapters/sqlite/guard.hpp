#pragma once

// The fence in a service's own SQLite database: judged and recorded in the transaction that writes, so that
// both stand or fall with its commit. Install the tables once with install() or 'fenceguard sql sqlite |
// sqlite3 FILE'.
//
//   sqlite::Transaction tx{db};                                      // BEGIN IMMEDIATE
//   Ruling ruling = sqlite::admit_in(tx, lease->claim());
//   if (ruling.verdict == Verdict::admitted) { /* your own statements on db */ tx.commit(); }
//
// Admit before the first savepoint: one that is rolled back takes the admission with it, and the transaction
// can then not be committed. No cache takes part, so any number of processes may use the file. A client that
// writes to the tables without admitting bypasses the fence.
//
// Thread safety: that of the connection.

#include <sqlite3.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "guard/guard.hpp"

namespace fenceguard::sqlite {

// Creates or upgrades the tables and initialises the namespace. Throws Unavailable.
void install_in(sqlite3* connection);

// A write transaction of the caller's own, which cannot be committed once a claim was refused in it.
class Transaction {
 public:
  // BEGIN IMMEDIATE, with synchronous=FULL (EXTRA outside of WAL) if the connection had less. The first one
  // of a connection settles the log in a transaction before, which costs a sync and writing the log's bytes:
  // keep connections open. jump_max: see is_implausible(); 0: no bound. Throws InvalidInput if a transaction
  // is open, Unavailable if the database cannot be had.
  explicit Transaction(sqlite3* connection, std::int64_t jump_max = 0);
  // Rolls back what was not committed.
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  // Throws InvalidInput, after rolling back, if a claim was refused or its admission was taken back by a
  // savepoint; Unavailable if another process was in the way (rolled back); OutcomeUnknown if the commit's
  // end was not seen, or a statement of the caller's had ended the transaction before.
  void commit();

  [[nodiscard]] sqlite3* handle() const noexcept { return connection_; }

 private:
  friend Ruling admit_in(Transaction&, const Claim&);
  friend std::vector<Ruling> admit_all_in(Transaction&, std::span<const Claim>);
  class State;

  sqlite3* connection_;
  std::unique_ptr<State> state_;
};

// Judges the claim and records it in the transaction. Throws Implausible, or Unavailable if the tables are
// not there or not initialised; the transaction then cannot be committed either.
[[nodiscard]] Ruling admit_in(Transaction& tx, const Claim& claim);

// Several claims, all or none: if one is refused nothing is recorded. Rulings in the order of the claims.
// Throws InvalidInput if two claims name one resource.
[[nodiscard]] std::vector<Ruling> admit_all_in(Transaction& tx, std::span<const Claim> claims);

// A guard on a connection of the caller's.
class Guard : public fenceguard::Guard {
 public:
  // REQUIRES: the connection outlives the guard, and is used by one thread at a time.
  explicit Guard(sqlite3* connection, std::int64_t jump_max = 0)
      : connection_{connection}, jump_max_{jump_max} {}

  [[nodiscard]] Ruling advance(const Claim& claim) override;

  // {judge; apply} as one transaction: calls apply with it open if the claim is admitted, then commits. What
  // apply throws passes through after a rollback.
  [[nodiscard]] Ruling write(const Claim& claim, const std::function<void(sqlite3*)>& apply);

 private:
  sqlite3* connection_;
  std::int64_t jump_max_;
};

}  // namespace fenceguard::sqlite
