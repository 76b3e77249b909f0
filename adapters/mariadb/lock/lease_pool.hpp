#pragma once

// Pool: the connections of a token source: opened as they are needed, used again while they are sound,
// dropped at the first doubt. Nothing is sent twice.
//
// Thread safety: all calls may be made from any thread at once.

#include <memory>
#include <mutex>
#include <semaphore>
#include <string_view>
#include <vector>

#include "adapters/mariadb/fences/session.hpp"

namespace fenceguard::mariadb {

// A procedure of a lease. Where it gives up because another session keeps the rows of the lease or of the
// counter, it is called once more, and that session is ended (call_cutting()).
[[nodiscard]] Rows call_lease(Connection& connection, std::string_view procedure, const Row& arguments);

class Pool {
 public:
  explicit Pool(Address address) : address_{std::move(address)} {}

  // Rows of a procedure, as in Session::run(). Waits while calls_max others are at it. Renewals wait for each
  // other only, so that no lease expires behind asks that wait.
  [[nodiscard]] Rows call(Stage stage, std::string_view doing, std::string_view procedure,
                          const Row& arguments);
  [[nodiscard]] Rows call_renewal(std::string_view doing, std::string_view procedure, const Row& arguments);
  // Of a statement that only looks.
  [[nodiscard]] Rows look(std::string_view doing, std::string_view sql, const Row& arguments);

  [[nodiscard]] const Address& address() const noexcept { return address_; }

 private:
  static constexpr int calls_max = 8;
  static constexpr std::size_t idle_max = 8;
  using Slots = std::counting_semaphore<calls_max>;

  template <class Function>
  Rows run(Slots& slots, Stage stage, std::string_view doing, const Function& function);

  const Address address_;
  Slots renewals_{calls_max};
  Slots others_{calls_max};
  std::mutex mutex_;  // guards the following
  std::vector<std::unique_ptr<Session>> idle_;
};

}  // namespace fenceguard::mariadb
