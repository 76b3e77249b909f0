#pragma once

// The connections of a token source: opened as they are needed, used again while they are sound, dropped at
// the first doubt. Nothing is ever sent twice, and no connection comes back to life: libpqxx 6 would open a
// broken one again by itself and so hide that its session, with its locks, is gone.
//
// Thread safety: all calls may be made from any thread at once.

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <pqxx/pqxx>
#include <semaphore>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/postgres/connect.hpp"

namespace fenceguard::postgres {

using Connection = std::unique_ptr<pqxx::connection>;

// Begins every transaction of a token source, whatever the session's defaults are.
inline constexpr std::string_view begin_sql =
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL client_min_messages = warning; ";

class Pool {
 public:
  // addresses: the same hosts, each time with another one in front. REQUIRES: there is one.
  explicit Pool(std::vector<Address> addresses) : addresses_{std::move(addresses)} {}

  // Makes the text of a statement, for which it may quote values.
  using Statement = std::function<std::string(pqxx::connection&)>;
  // Whether what the statement answered is to be committed. If not, the transaction is rolled back, and a
  // connection that is lost in doing so changes nothing about the answer.
  using TookEffect = std::function<bool(const pqxx::result&)>;

  // Runs one statement in a transaction of its own. Waits while calls_max others are at it. Throws
  // Unavailable (nothing was committed), OutcomeUnknown (the connection was lost at COMMIT), InvalidInput.
  pqxx::result call(std::string_view doing, const Statement& statement, const TookEffect& took_effect);

  // The same for a renewal, which may be sent twice. Renewals wait for each other only, so that no lease
  // expires behind asks that hang. Where there are several hosts, one that hangs is given up after limit, and
  // the next one is asked within this call.
  pqxx::result call_renewal(std::string_view doing, const Statement& statement, const TookEffect& took_effect,
                            std::chrono::milliseconds limit);

  // A sound connection for a longer use. Throws Unavailable.
  [[nodiscard]] Connection take();

  // For the next one. REQUIRES: nothing is pending on it, neither a transaction nor a lock of the session.
  void give_back(Connection connection) noexcept;

 private:
  static constexpr int calls_max = 8;
  static constexpr std::size_t idle_max = 8;

  // Where the connection is not fit for the next one it is dropped.
  static pqxx::result exchange(Connection& connection, std::string_view doing, const Statement& statement,
                               const TookEffect& took_effect);
  [[nodiscard]] std::size_t host_in_use();
  void turn_away_from(std::size_t host);

  const std::vector<Address> addresses_;
  std::counting_semaphore<calls_max> renewals_{calls_max};
  std::counting_semaphore<calls_max> others_{calls_max};
  std::mutex mutex_;        // guards the following
  std::size_t in_use_ = 0;  // of addresses_
  std::vector<Connection> idle_;
};

}  // namespace fenceguard::postgres
