#pragma once

// The connections of a token source: opened as they are needed, used again while they are sound, dropped at
// the first doubt. Nothing is ever sent twice, and no connection comes back to life: libpqxx 6 would open a
// broken one again by itself and so hide that its session, with its locks, is gone.
//
// Thread safety: all calls may be made from any thread at once.

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
inline constexpr std::string_view begin_sql = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; ";

class Pool {
 public:
  explicit Pool(Address address) : address_{std::move(address)} {}

  // Makes the text of a statement, for which it may quote values.
  using Statement = std::function<std::string(pqxx::connection&)>;
  // Whether what the statement answered is to be committed. If not, the transaction is rolled back, and a
  // connection that is lost in doing so changes nothing about the answer.
  using TookEffect = std::function<bool(const pqxx::result&)>;

  // Runs one statement in a transaction of its own. Waits while calls_max others are at it. Throws
  // Unavailable (nothing was committed), OutcomeUnknown (the connection was lost at COMMIT), InvalidInput.
  pqxx::result call(std::string_view doing, const Statement& statement, const TookEffect& took_effect);

  // A sound connection for a longer use. Throws Unavailable.
  [[nodiscard]] Connection take();

  // For the next one. REQUIRES: nothing is pending on it, neither a transaction nor a lock of the session.
  void give_back(Connection connection) noexcept;

  [[nodiscard]] const Address& address() const noexcept { return address_; }

 private:
  static constexpr int calls_max = 8;
  static constexpr std::size_t idle_max = 8;

  Address address_;
  std::counting_semaphore<calls_max> calls_{calls_max};
  std::mutex mutex_;
  std::vector<Connection> idle_;
};

}  // namespace fenceguard::postgres
