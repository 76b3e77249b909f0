// A service with its data in MariaDB or MySQL: the claim is judged in the very transaction that writes, so
// there is no moment between the check and the write.
//
// usage: library_mariadb mariadb://USER@HOST/DATABASE
// Once before: fenceguard sql mariadb | mariadb
// Leases and data are on one server here; the leases may as well be anywhere else that open_source() knows.

#include <chrono>
#include <cstdio>
#include <string>

#include "adapters/mariadb/guard.hpp"
#include "adapters/schemes.hpp"
#include "guard/lease.hpp"

using namespace fenceguard;
using namespace std::chrono_literals;

namespace {

// Adds to the balance of account 42, if the claim still stands: an advance, where the token is new, comes
// before the transaction that reads.
Verdict add(mariadb::Connection& connection, const Claim& claim, int amount) {
  const auto apply = [&](mariadb::Connection& tx) {
    const int balance = std::stoi(tx.run("SELECT balance FROM account WHERE id = 42")[0][0].value());
    tx.run("UPDATE account SET balance = ? WHERE id = 42", {std::to_string(balance + amount)});
  };
  return mariadb::Guard{connection}.write(claim, apply).verdict;
}

int run(const std::string& url) {
  mariadb::Connection connection{mariadb::address_of(Url::parse(url))};
  connection.run(
      "CREATE TABLE IF NOT EXISTS account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL) ENGINE = InnoDB");
  connection.run("INSERT INTO account VALUES (42, 100) ON DUPLICATE KEY UPDATE balance = 100");
  auto source = open_source(url);
  auto first = source->acquire(Resource{"accounts/42"}, {.ttl = 10s, .wait = 30s});
  if (!first) return std::puts("the lock is busy"), 1;
  std::printf("A adds 50: %s\n", to_string(add(connection, first->claim(), 50)));

  // A stops for too long and loses the lock (here it is taken away); B takes it and writes.
  (void)source->end(Resource{"accounts/42"});
  auto second = source->acquire(Resource{"accounts/42"}, {.ttl = 10s, .wait = 30s});
  if (!second) return std::puts("the lock is busy"), 1;
  std::printf("B adds 30: %s\n", to_string(add(connection, second->claim(), 30)));
  std::printf("A adds 50: %s\n", to_string(add(connection, first->claim(), 50)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::puts("usage: library_mariadb mariadb://USER@HOST/DATABASE"), 2;
  try {
    return run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "library_mariadb: %s\n", error.what());
    return 3;
  }
}
