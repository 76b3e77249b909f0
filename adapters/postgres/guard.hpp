#pragma once

// The fence in a service's own PostgreSQL database: judged and recorded in the transaction that writes, so
// that both stand or fall with its commit. Install it once per database: 'fenceguard sql postgres | psql'.
//
//   pqxx::work tx{connection};                                       // your own transaction
//   Ruling ruling = postgres::admit_in(tx, lease->claim());
//   if (ruling.verdict == Verdict::admitted) { tx.exec(sql); tx.commit(); }
//
// A Ruling from here has a fence only where the claim itself tells all of it (admitted or duplicate, with a
// sequence), and never changed: nothing is left to be stored.
//
// Thread safety: that of the connection.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <pqxx/pqxx>
#include <span>
#include <string>
#include <vector>

#include "adapters/postgres/admit_options.hpp"
#include "guard/guard.hpp"

namespace fenceguard::postgres {

// After an exec() that failed, libpqxx 6.4 has rolled tx back: what is then sent by exec_params() or
// exec_prepared() runs alone and commits at once, guarded by nothing. Do not catch the failure and go on.

// Judges the claim for the rest of tx, in one round trip. After a refusal or a fault every statement of tx
// fails at the server, and nothing of it is written, whatever the caller looks at; its locks are let go of at
// once, and tx.commit() throws. (libpqxx throws once and forgets; commit() below does not. tx is not aborted
// on the client's side, because libpqxx then sends exec_params() outside of any transaction.) Call it before
// the first savepoint: rolling back to one that is older takes the admission along. Throws InvalidInput for a
// subtransaction; Implausible; Unavailable (rolled back: older writes are still open, the snapshot is too
// old, the fences are not installed).
[[nodiscard]] Ruling admit_in(pqxx::dbtransaction& tx, const Claim& claim, const AdmitOptions& options = {});

// Several claims, all or none, locked in one order. Rulings in the order of the claims; if one is not
// admitted nothing is recorded, and tx ends as after a refusal. Throws InvalidInput if two claims name one
// resource, or there is none.
[[nodiscard]] std::vector<Ruling> admit_all_in(pqxx::dbtransaction& tx, std::span<const Claim> claims,
                                               const AdmitOptions& options = {});

// Commits tx, and is certain of it. libpqxx's own commit() takes PostgreSQL's ROLLBACK of a transaction in
// which a statement had failed, its exception caught, for a commit; this one looks first, which is another
// round trip. Throws OutcomeUnknown if the end was not seen, or came with a warning (of a cancelled wait for
// the synchronous standby); Unavailable if it was rolled back; what a deferred constraint says passes
// through, and nothing was committed.
void commit(pqxx::dbtransaction& tx);

// What Guard::execute() did. result is that of the statement: affected_rows(), and rows if it RETURNs some.
struct WriteResult {
  Ruling ruling;
  pqxx::result result;  // empty unless admitted
};

// A guard on a connection of the caller's.
class Guard : public fenceguard::Guard {
 public:
  using Parameters = std::vector<std::optional<std::string>>;  // as text; nothing is null

  // REQUIRES: the connection outlives the guard, and is used by one thread at a time.
  explicit Guard(pqxx::connection& connection, AdmitOptions options = {})
      : connection_{connection}, options_{options} {}

  // One round trip. READ COMMITTED and durable, whatever the session says.
  [[nodiscard]] Ruling advance(const Claim& claim) override;

  // {judge; apply} as one READ COMMITTED transaction: calls apply with it open if the claim is admitted, then
  // commits. Three round trips beside those of apply. What apply throws passes through after a rollback, and
  // so does what a deferred constraint says at the commit. A session that ended before COMMIT was sent, by
  // the drain of a newer claim among others, is stale with a highest of 0 (not known) where it is certain
  // that nothing was committed, and OutcomeUnknown where it is not; the connection is lost. Certain it is
  // with libpqxx 6, by a statement of exec(), if neither it nor one before has a word of COMMIT, END,
  // ROLLBACK, ABORT, PREPARE, EXECUTE, nor was answered with an end: of exec_params() and exec_prepared()
  // what is under way is not seen, and with libpqxx 7 nothing is. Admitted means committed: Unavailable is
  // thrown if apply swallowed the failure of a statement; OutcomeUnknown also if the end was not seen, apply
  // aborted, a statement of apply's ended the transaction, or it rolled back to a savepoint before the
  // admission.
  [[nodiscard]] Ruling write(const Claim& claim, const std::function<void(pqxx::work&)>& apply);

  // Judge and write in one round trip, and one READ COMMITTED transaction that also advances where it must.
  // The statement is one INSERT, UPDATE, DELETE or MERGE with parameters $1, $2, ..., prepared at its first
  // use (one more round trip). What it raises itself, a refusal of another claim among it, passes
  // through as libpqxx's exception, and nothing was written. Throws as write(); never repeats what may have
  // taken effect.
  [[nodiscard]] WriteResult execute(const Claim& claim, const std::string& statement,
                                    const Parameters& parameters = {});

  // After OutcomeUnknown: true proves that the write with the claim's sequence took effect. False proves
  // nothing, and it stays unknown: it may still be under way, be overtaken, or have been rolled back. Throws
  // InvalidInput without a sequence; OutcomeUnknown where the wait for a standby was cancelled again;
  // Unavailable. The connection may be a new one.
  [[nodiscard]] bool ask(const Claim& claim);

 private:
  // Of a duplicate, whose first commit may be one whose end no client saw: returns once it is durable.
  void confirm(const Claim& claim, const Ruling& ruling);

  std::string prepared(const std::string& statement);
  pqxx::result send_guarded(const Claim& claim, const std::string& statement, const Parameters& parameters);

  pqxx::connection& connection_;
  AdmitOptions options_;
  std::map<std::string, std::string> prepared_;  // statement -> name in the session
};

}  // namespace fenceguard::postgres
