#include "adapters/postgres/lock/session_manager.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>

#include "adapters/postgres/errors.hpp"
#include "guard/error.hpp"

namespace fenceguard::postgres {
namespace {

// Cancels what a connection runs, from a stop request until its own end: again and again, because the server
// ignores what arrives before the statement does.
class Canceller {
 public:
  Canceller(pqxx::connection& connection, const std::stop_token& stop)
      : thread_{[this, &connection](const std::stop_token& over) { run(connection, over); }},
        on_stop_{stop, [this] {
                   const std::scoped_lock lock{mutex_};
                   is_wanted_ = true;
                   changed_.notify_all();
                 }} {}

 private:
  void run(pqxx::connection& connection, const std::stop_token& over) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, over, [this] { return is_wanted_; });
    while (!over.stop_requested()) {
      lock.unlock();
      try {
        connection.cancel_query();
      } catch (const std::exception&) {
        // The next one may arrive.
      }
      lock.lock();
      changed_.wait_for(lock, over, std::chrono::milliseconds{100}, [] { return false; });
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool is_wanted_ = false;
  std::jthread thread_;
  std::stop_callback<std::function<void()>> on_stop_;
};

// What a session, or its transaction, must not be ended by while it keeps a lock; and what tells the server
// in half a minute that the machine of a client is gone. Names that this version of PostgreSQL does not know
// are passed over.
std::string settings_sql(LockKind kept_by, std::chrono::milliseconds wait) {
  // A row's go with its transaction, which is what a pooler before the server keeps together.
  const char* is_local = kept_by == LockKind::row ? "true" : "false";
  return fmt::format(
      "SELECT pg_catalog.pg_backend_pid(), pg_catalog.count(pg_catalog.set_config(s.name, s.value, "
      "s.is_local)) "
      "FROM (VALUES ('lock_timeout', '{1}ms', true), ('statement_timeout', '0', true), "
      "('idle_in_transaction_session_timeout', '0', {0}), ('transaction_timeout', '0', true), "
      "('idle_session_timeout', '0', {0}), ('tcp_keepalives_idle', '10', {0}), "
      "('tcp_keepalives_interval', '5', {0}), ('tcp_keepalives_count', '3', {0}), "
      "('tcp_user_timeout', '25s', {0})) AS s (name, value, is_local) "
      "WHERE pg_catalog.current_setting(s.name, true) IS NOT NULL",
      is_local, std::clamp<std::int64_t>(wait.count(), 1, std::numeric_limits<std::int32_t>::max()));
}

}  // namespace

const char* to_string(LockKind kept_by) noexcept {
  return kept_by == LockKind::row ? "row" : "advisory";
}

SessionManager::SessionManager(Pool& pool, LockKind kept_by, const Resource& resource)
    : pool_{pool}, lock_kind_{kept_by}, resource_{resource.name()}, connection_{pool.take()} {}

pqxx::result SessionManager::exec(const std::string& statement) {
  pqxx::nontransaction tx{*connection_};
  return tx.exec(statement);
}

bool SessionManager::take(std::chrono::milliseconds wait, const std::stop_token& stop) {
  try {
    begin(wait);
    bool is_held = false;
    if (wait.count() > 0) {
      const Canceller canceller{*connection_, stop};
      is_held = hold(wait);
    } else {
      is_held = hold(wait);
    }
    if (stop.stop_requested()) {
      connection_.reset();  // a cancel that came too late for the wait may hit the next statement
      return false;
    }
    if (!is_held) {
      (void)exec("ROLLBACK");
      recycle();
    }
    return is_held;
  } catch (...) {
    connection_.reset();
    if (stop.stop_requested()) return false;
    raise_current(Stage::before_commit, "acquiring " + resource_);
  }
}

void SessionManager::begin(std::chrono::milliseconds wait) {
  const auto rows = exec(std::string{begin_sql} + settings_sql(lock_kind_, wait));
  pid_ = rows[0][0].as<int>();
  if (lock_kind_ == LockKind::advisory && pid_ != connection_->backendpid()) {
    throw InvalidInput(
        "?lock=advisory needs a session of its own, and a pooler stands before this server: connect to the "
        "server itself, or use ?lock=row");
  }
}

bool SessionManager::hold(std::chrono::milliseconds wait) {
  const auto resource = connection_->quote(resource_);
  const auto key = fmt::format("fenceguard.lease_lock_key({})", resource);
  const bool waits = wait.count() > 0;
  if (lock_kind_ == LockKind::row) {
    // A transaction that ends frees its row before its advisory lock, which hold_row() only tries: so a
    // waiting caller waits for the advisory lock.
    if (waits && !lock_in_time("pg_advisory_xact_lock", key)) return false;
    return exec(fmt::format("SELECT fenceguard.hold_row({}, {})", resource, waits))[0][0].as<bool>();
  }
  const bool is_held =
      waits ? lock_in_time("pg_advisory_lock", key)
            : exec(fmt::format("SELECT pg_catalog.pg_try_advisory_lock({})", key))[0][0].as<bool>();
  // The lock is the session's, and outlives the transaction that took it.
  if (is_held) (void)exec("COMMIT");
  return is_held;
}

// False: lock_timeout.
bool SessionManager::lock_in_time(const std::string& function, const std::string& key) {
  try {
    (void)exec(fmt::format("SELECT pg_catalog.{}({})", function, key));
    return true;
  } catch (const pqxx::sql_error& error) {
    if (error.sqlstate() == "55P03") return false;
    throw;
  }
}

bool SessionManager::is_alive() {
  if (!connection_) return false;
  try {
    if (exec("SELECT pg_catalog.pg_backend_pid()")[0][0].as<int>() == pid_) return true;
  } catch (const std::exception&) {
    // Uncertain is lost.
  }
  connection_.reset();
  return false;
}

bool SessionManager::free() {
  if (!connection_) return false;
  try {
    if (lock_kind_ == LockKind::advisory) {
      const auto key = fmt::format("fenceguard.lease_lock_key({})", connection_->quote(resource_));
      if (exec(fmt::format("SELECT pg_catalog.pg_advisory_unlock({})", key))[0][0].as<bool>()) return true;
    } else if (is_alive()) {
      (void)exec("ROLLBACK");
      return true;
    }
  } catch (const std::exception&) {
    // Uncertain is lost.
  }
  connection_.reset();
  return false;
}

void SessionManager::recycle() noexcept {
  if (connection_) pool_.give_back(std::move(connection_));
}

}  // namespace fenceguard::postgres
