#include "adapters/mariadb/fences/old_sessions.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <thread>
#include <vector>

#include "adapters/mariadb/errors.hpp"
#include "adapters/mariadb/fences/rulings.hpp"
#include "guard/error.hpp"

namespace fenceguard::mariadb {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds look{10};

// Fails without that privilege, with which alone the list of sessions is whole.
constexpr const char* require_process = "SELECT COUNT(*) FROM information_schema.innodb_trx";
// Not those of the server itself; nor connections that have not logged in, which is as if they came later.
constexpr const char* all_sessions =
    "SELECT p.id, p.user, p.command, p.query_id FROM information_schema.processlist p "
    "WHERE p.id <> CONNECTION_ID() AND p.command <> 'Daemon' AND p.command NOT LIKE 'Slave%' "
    "AND p.user <> 'unauthenticated user'";
constexpr const char* logins =
    "SELECT t.processlist_id, t.processlist_user FROM performance_schema.threads t "
    "WHERE t.processlist_id IS NOT NULL AND t.processlist_user IS NOT NULL";
constexpr const char* events_of_account =
    "SELECT COUNT(*) FROM mysql.event e WHERE e.status = 'ENABLED' "
    "AND CAST(LEFT(e.definer, CHAR_LENGTH(e.definer) - LOCATE('@', REVERSE(e.definer))) AS BINARY) = "
    "CAST(? AS BINARY)";

// Which sessions are an account's. The list of sessions shows the user with whose rights a statement runs
// just now: within a procedure or a trigger that is its definer. What cannot change is the account that
// logged in, and two things tell it: performance_schema.threads, where that is on and may be read; or the
// list, of a session that was idle when its user was read. A row is not read at one moment: first the user,
// then the state, then the statement's number. Three looks in a row that find it idle behind one statement
// leave no room for another: none began between the numbers of the first two, that one was over in the
// second, and none had begun when the third read the user.
class Account {
 public:
  Account(Connection& connection, const std::string& user) : connection_{connection}, user_{user} {
    const auto is_on = connection_.run("SELECT @@global.performance_schema").at(0).at(0);
    has_logins_ = is_on == "1";
  }

  // One look. Ends those that are the account's.
  void end_sessions() {
    const auto login_of = read_logins();
    present_ = 0;
    unclear_.clear();
    for (const auto& row : connection_.run(all_sessions)) {
      const auto& id = row.at(0).value();
      if (!is_told(id)) tell(id, row, login_of);
      if (old_.contains(id)) {
        ++present_;
        if (ended_.insert(id).second) connection_.end_session(id);
      } else if (!others_.contains(id)) {
        unclear_.push_back(id);
      }
    }
  }

  [[nodiscard]] bool is_gone() const { return present_ == 0 && unclear_.empty(); }
  [[nodiscard]] int ended() const { return static_cast<int>(ended_.size()); }
  [[nodiscard]] std::string objection() const {
    if (present_ > 0) return fmt::format("{} of the sessions of {} did not end", present_, user_);
    return fmt::format(
        "sessions {} are within a statement, and whether they are of {} is not known: within a procedure or "
        "a trigger the server shows its definer; with performance_schema = ON, and SELECT on "
        "performance_schema.threads, it tells who logged in",
        fmt::join(unclear_, ", "), user_);
  }

 private:
  struct Idle {
    std::string statement;
    int looks = 0;  // in a row that found it so
  };

  [[nodiscard]] bool is_told(const std::string& id) const {
    return old_.contains(id) || others_.contains(id);
  }

  std::map<std::string, std::string> read_logins() {
    std::map<std::string, std::string> login_of;
    if (!has_logins_) return login_of;
    try {
      for (const auto& row : connection_.run(logins)) login_of.emplace(row.at(0).value(), row.at(1).value());
    } catch (const ServerError& error) {
      if (error.number() != table_access_denied) throw;
      has_logins_ = false;
    }
    return login_of;
  }

  void tell(const std::string& id, const Row& row, const std::map<std::string, std::string>& login_of) {
    if (const auto login = login_of.find(id); login != login_of.end()) {
      (login->second == user_ ? old_ : others_).insert(id);
    } else if (row.at(1) == user_) {
      old_.insert(id);
    } else if (row.at(2) == "Sleep" || row.at(2) == "Binlog Dump") {
      auto& idle = idle_[id];
      idle.looks = row.at(3) == idle.statement ? idle.looks + 1 : 1;
      idle.statement = row.at(3).value();
      if (idle.looks == 3) others_.insert(id);
    } else {
      idle_.erase(id);
    }
  }

  Connection& connection_;
  const std::string& user_;
  bool has_logins_ = false;
  std::set<std::string> old_, others_, ended_;
  std::map<std::string, Idle> idle_;
  int present_ = 0;
  std::vector<std::string> unclear_;
};

// A prepared transaction outlives its session, any session may commit it, and the server does not tell whose
// it is. The right to see them is MySQL's alone.
std::set<Row> prepared_transactions(Connection& connection) {
  const auto rows = connection.run("XA RECOVER");
  return {rows.begin(), rows.end()};
}

void require_no_events(Connection& connection, const std::string& user) {
  if (connection.run("SELECT @@global.event_scheduler").at(0).at(0) != "ON") return;
  if (number_in(connection.run(events_of_account, {user}), 0) == 0) return;
  throw Unavailable(fmt::format(
      "the event scheduler is on and has events of {}, which run without a session of its own: disable them",
      user));
}

}  // namespace

int end_sessions(const Url& url, const std::string& user, std::chrono::milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  const auto wait_or_fail = [&deadline](const std::string& objection) {
    if (steady_clock::now() >= deadline) throw Unavailable(objection);
    std::this_thread::sleep_for(look);
  };
  Connection connection{address_of(url, {"lock"})};
  return mapped(Stage::before_commit, fmt::format("ending the sessions of {}", user), [&] {
    connection.run(require_process);
    require_no_events(connection, user);
    Account account{connection, user};
    for (account.end_sessions(); !account.is_gone(); account.end_sessions())
      wait_or_fail(account.objection());
    const auto before = prepared_transactions(connection);
    for (auto left = before; !left.empty();) {
      std::erase_if(left,
                    [now = prepared_transactions(connection)](const Row& row) { return !now.contains(row); });
      if (!left.empty())
        wait_or_fail(
            fmt::format("{} prepared transactions (XA RECOVER) are left, and whose they are the server "
                        "does not tell: commit them or roll them back",
                        left.size()));
    }
    return account.ended();
  });
}

void finish_holder(const Url& url, const Claim& claim) {
  Connection connection{address_of(url, {"lock"})};
  mapped(Stage::at_commit, fmt::format("closing the fence of {}", claim.resource.name()),
         [&] { return connection.call("finish", arguments_of(claim)); });
}

}  // namespace fenceguard::mariadb
