#pragma once

// SessionManager: a connection that holds the lock of one resource, for as long as its session lives: a row
// that an open transaction keeps locked, or an advisory lock of the session. The server frees the lock when
// the session ends, for whatever reason; so a check whether it still holds asks the session, and takes no
// answer, or that of another session, for a no.
//
// Thread safety: one thread at a time.

#include <chrono>
#include <stop_token>

#include "adapters/postgres/lock/lease_pool.hpp"
#include "guard/resource.hpp"

namespace fenceguard::postgres {

enum class LockKind { row, advisory };

// The word for it in SQL and in URLs.
[[nodiscard]] const char* to_string(LockKind kept_by) noexcept;

class SessionManager {
 public:
  // Takes a connection out of the pool. REQUIRES: the pool outlives the session manager. Throws Unavailable.
  SessionManager(Pool& pool, LockKind kept_by, const Resource& resource);
  // Closes the connection, unless it was recycled.
  ~SessionManager() = default;
  SessionManager(const SessionManager&) = delete;
  SessionManager& operator=(const SessionManager&) = delete;

  // Takes the lock, and waits so long for it; a stop request ends that. False: not had. The row must be there
  // (LeaseClient::prepare_row). Throws Unavailable; InvalidInput where a pooler makes it impossible.
  [[nodiscard]] bool take(std::chrono::milliseconds wait, const std::stop_token& stop);

  // Of the session. REQUIRES: take() was called.
  [[nodiscard]] int pid() const noexcept { return pid_; }

  // Asks the session. False: it is gone, or may be; then so is the connection.
  [[nodiscard]] bool is_alive();

  // Frees the lock; true: it was held until now.
  bool free();

  // Gives the connection back to the pool. REQUIRES: the lock was freed.
  void recycle() noexcept;

 private:
  void begin(std::chrono::milliseconds wait);
  bool hold(std::chrono::milliseconds wait);
  bool lock_in_time(const std::string& function, const std::string& key);
  [[nodiscard]] pqxx::result exec(const std::string& statement);

  Pool& pool_;
  const LockKind lock_kind_;
  const std::string resource_;
  Connection connection_;
  int pid_ = 0;
};

}  // namespace fenceguard::postgres
