#pragma once

// The fence in a service's own MariaDB or MySQL server: judged in the transaction that writes, so that both
// stand or fall with its commit. Install it once per server: 'fenceguard sql mariadb | mariadb'.
//
//   mariadb::Connection connection{address};                 // or one that wraps your own MYSQL*
//   connection.run("START TRANSACTION");                     // your own transaction
//   Ruling ruling = mariadb::admit_in(connection, lease->claim());
//   if (ruling.verdict == Verdict::admitted) { connection.run(sql); mariadb::commit(connection, claim); }
//
// A Ruling from here has a fence only where the claim itself tells all of it (admitted or duplicate, with a
// sequence), and never changed: nothing is left to be stored. Do not go on after an error: a deadlock has
// rolled the transaction back, and what follows runs, and commits, alone.
//
// Thread safety: that of the connection.

#include <functional>
#include <span>
#include <vector>

#include "adapters/mariadb/admit_options.hpp"
#include "adapters/mariadb/connection.hpp"
#include "guard/guard.hpp"

namespace fenceguard::mariadb {

// Judges the claim for the rest of the transaction, in one round trip. It must equal the fence: advance it
// before, in Guard::advance(). After a refusal or a fault the transaction was rolled back, and the
// connection sends nothing that writes or commits by itself until COMMIT, ROLLBACK or START TRANSACTION
// (Connection::doom()). Throws InvalidInput where no transaction is open; Unavailable where the claim must
// advance first, or the snapshot is older than the advance.
[[nodiscard]] Ruling admit_in(Connection& connection, const Claim& claim);

// Several claims, all or none, a round trip each, locked in one order: calls that take the same resources do
// not deadlock with each other. Rulings in the order of the claims; if one is not admitted (a duplicate is
// not), the transaction ends as after a refusal, and those behind it were judged without it. Throws as
// admit_in(), and InvalidInput if two claims name one resource, or there is none.
[[nodiscard]] std::vector<Ruling> admit_all_in(Connection& connection, std::span<const Claim> claims);

// Commits the transaction in which the claim was admitted, if the fence still equals it: see 'what takes the
// lock away' in docs/mariadb. One round trip more than COMMIT. Throws Unavailable where it was rolled
// back; OutcomeUnknown if the end was not seen, or the transaction was over before.
void commit(Connection& connection, const Claim& claim);
// The same for the claims of admit_all_in(); a round trip for each.
void commit(Connection& connection, std::span<const Claim> claims);

// A guard on a connection of the caller's.
class Guard : public fenceguard::Guard {
 public:
  // REQUIRES: the connection outlives the guard, and is used by one thread at a time.
  explicit Guard(Connection& connection, AdmitOptions options = {})
      : connection_{connection}, options_{options} {}

  // One round trip, and one transaction of its own. Where older transactions are still open after the drain,
  // a second session looks for those that keep the fence's row, and ends their sessions (KILL), within 5 s
  // more: what is open in them is rolled back. That needs the privilege PROCESS, and CONNECTION ADMIN for
  // other users' sessions. Throws Unavailable where they stay, and says what was missing.
  [[nodiscard]] Ruling advance(const Claim& claim) override;

  // {judge; apply} as one READ COMMITTED transaction, after an advance in one of its own where the claim
  // must: calls apply with it open if the claim is admitted, then commits. Two round trips beside those of
  // apply. What apply throws passes through after a rollback. A session that ended before COMMIT was sent, by
  // the cut of a newer claim among others, is stale with a highest of 0 (not known), where nothing can have
  // been committed (Connection::is_transaction_whole()); the connection is lost. Throws OutcomeUnknown where
  // something can, if the end was not seen, or a statement of apply's ended the transaction or rolled it back
  // to before the admission.
  [[nodiscard]] Ruling write(const Claim& claim, const std::function<void(Connection&)>& apply);

  // The data as they are under the claim, in a transaction that is read while the fence is locked: advances
  // first where the claim must. look is called if the claim is admitted.
  [[nodiscard]] Ruling read(const Claim& claim, const std::function<void(Connection&)>& look);

 private:
  [[nodiscard]] Ruling start(const Claim& claim);
  // Ends what is open; a connection on which that fails is of no more use.
  void roll_back() noexcept;

  Connection& connection_;
  AdmitOptions options_;
};

}  // namespace fenceguard::mariadb
