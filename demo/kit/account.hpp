#pragma once

// Account: what the clients of a scenario add to, as it is in the storage, from outside of all clients.
// Fixture: the account and the two clients with which most scenarios begin.
//
// Not thread-safe.

#include <memory>
#include <string>

#include "demo/clients/clients.hpp"
#include "demo/kit/client.hpp"

namespace fenceguard::demo {

class Account {
 public:
  static constexpr std::int64_t initial = 100;

  // Opens it with the initial balance. place: see ClientOptions; it is made here, and removed with the
  // account.
  Account(Harness& harness, const std::string& storage, const std::string& place = "demo",
          std::string resource = account);
  ~Account();
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  [[nodiscard]] std::int64_t balance() { return balance_if_any().value(); }
  [[nodiscard]] std::optional<std::int64_t> balance_if_any();
  // Sets it back to the initial balance, as an event of the actor.
  void reset(const std::string& actor, std::string_view why);

 private:
  Harness& harness_;
  std::string resource_;
  std::unique_ptr<RawClient> client_;
};

// What clients A and B add, and the balance that a run without a lost update ends with.
inline constexpr std::int64_t add_a = 50, add_b = 30, expected = Account::initial + add_a + add_b;

// Each member is for the scenario to use.
struct Fixture {
  // Opens the account, starts the clients, and then starts the clock of the run.
  Fixture(Harness& harness, const ClientOptions& options) : Fixture{harness, options, options} {}
  // REQUIRES: both name the same account.
  Fixture(Harness& harness, const ClientOptions& options_of_a, const ClientOptions& options_of_b);

  Account balance;
  Client a;
  Client b;
};

// 'fenceguard fence init': its floor is drawn from the storage's own source, unless the arguments name
// another or a floor.
void initialise_fences(Harness& harness, const std::string& storage,
                       const std::vector<std::string>& arguments = {});

}  // namespace fenceguard::demo
