#include "adapters/mariadb/fences/holder_cutter.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "adapters/mariadb/errors.hpp"
#include "adapters/mariadb/fences/rulings.hpp"
#include "guard/error.hpp"

// Whom not to end, and what could make it so:
//
// - A transaction without a number of its own, which has shared locks alone: InnoDB shows 0 for all of them.
//   An admission takes a number (admissions in 001_fences.sql). A prepared one (XA) has no session.
// - A call of the procedures that itself waits, 5 s at most, while it has the row. So a session in which no
// claim was admitted is ended only when it was seen for 3 s, after the 5 s that we waited before. An
// admission marks its session, by a lock of the server's (note_claim()).
// - What replicates: it has a session as well, and no user.
// - A newer claim whose advance or COMMIT takes long: the fence is judged as it is with what is not
// committed.
// - Who waits for the row as well, before us: it has nothing yet.
// - A call of the procedures that is about to let go of the row again: it is not seen twice, a while apart.
// - Who is out of the way by now. InnoDB answers from what it had collected for others a tenth of a second
//   before, or longer; only an answer that holds this very statement was collected for it.
// - A session that has the number of an ended one: they count upwards, and begin anew with the server, over
//   which this connection does not live.
//
// What is left is one round trip between look and KILL. A holder that commits in it has committed, and the
// advance, which has the row only then, comes after that; its session ends all the same, and what it may have
// begun by then is rolled back, as with any connection that is lost.

namespace fenceguard::mariadb {
namespace {

using namespace std::chrono_literals;

constexpr auto look_again = 150ms;  // InnoDB collects anew after a tenth of a second without questions
constexpr auto unmarked_wait = 3s;

}  // namespace

HolderCutter::HolderCutter(Address address, std::uint64_t waiting, std::optional<Claim> newer)
    : address_{std::move(address)},
      waiting_{waiting},
      newer_{std::move(newer)},
      thread_{[this](const std::stop_token& stop) { watch(stop); }} {}

const std::string& HolderCutter::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  return objection_;
}

void HolderCutter::watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  const auto cut = [&] {
    Connection connection{address_};
    connection.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED");
    std::map<Session, std::chrono::steady_clock::time_point> first_seen;
    while (!stop.stop_requested()) {
      Sessions now;
      if (is_newer(connection)) now = look(connection);
      std::erase_if(first_seen, [&](const auto& seen) { return !now.contains(seen.first); });
      for (const auto& [session, is_marked] : now) {
        const auto [seen, is_first] = first_seen.try_emplace(session, std::chrono::steady_clock::now());
        if (is_first) continue;
        if (is_marked || std::chrono::steady_clock::now() - seen->second >= unmarked_wait)
          connection.end_session(session.first);
      }
      std::unique_lock lock{mutex};
      stopped.wait_for(lock, stop, look_again, [] { return false; });
    }
  };
  try {
    mapped(Stage::before_commit, "cutting older holders", cut);
  } catch (const Error& error) {
    objection_ = error.what();
  }
}

bool HolderCutter::is_newer(Connection& connection) const {
  return !newer_ || number_in(connection.call("would_raise", arguments_of(*newer_)), 0) != 0;
}

HolderCutter::Sessions HolderCutter::look(Connection& connection) {
  connection.run("START TRANSACTION WITH CONSISTENT SNAPSHOT");  // in it InnoDB shows this session, too
  const auto mark = fmt::format("fenceguard look {};", ++looks_);
  const auto rows = connection.run(fmt::format(
      "SELECT b.trx_mysql_thread_id, b.trx_started, COALESCE(IS_USED_LOCK(CONCAT('fenceguard.admitted.', "
      "b.trx_mysql_thread_id)) = b.trx_mysql_thread_id, FALSE) /* {0} */ FROM information_schema.innodb_trx "
      "me "
      "JOIN information_schema.innodb_trx r ON r.trx_mysql_thread_id = {1} "
      "JOIN information_schema.innodb_lock_waits w ON w.requesting_trx_id = r.trx_id "
      "JOIN information_schema.innodb_locks l ON l.lock_id = w.blocking_lock_id "
      "JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id "
      "JOIN information_schema.processlist p ON p.id = b.trx_mysql_thread_id AND p.user <> 'system user' "
      "WHERE me.trx_mysql_thread_id = CONNECTION_ID() AND INSTR(me.trx_query, '{0}') > 0 "
      "AND r.trx_id <> 0 AND b.trx_id <> 0 AND b.trx_mysql_thread_id <> 0 "
      "AND LEFT(l.lock_table, CHAR_LENGTH({2})) = {2} "
      "AND NOT b.trx_requested_lock_id <=> w.blocking_lock_id",
      mark, waiting_, connection.quote(quoted_name(connection.schema()) + ".")));
  connection.run("COMMIT");
  Sessions sessions;
  for (const auto& row : rows) sessions[{row.at(0).value(), row.at(1).value()}] = row.at(2).value() == "1";
  return sessions;
}

}  // namespace fenceguard::mariadb
