// A service with its data in PostgreSQL: the claim is judged in the very transaction that writes, so there is
// no moment between the check and the write.
//
// usage: library_postgres postgres://USER@HOST/DATABASE
// Once before: fenceguard sql postgres | psql postgres://USER@HOST/DATABASE
// Leases and data are in one database here; the leases may as well be anywhere else that open_source() knows.

#include <chrono>
#include <cstdio>
#include <pqxx/pqxx>
#include <string>

#include "adapters/postgres/guard.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "adapters/schemes.hpp"
#include "guard/lease.hpp"

using namespace fenceguard;
using namespace std::chrono_literals;

namespace {

// Writes the balance of account 42, if the claim still stands. What is read in the transaction after
// admit_in() is safe too; a service that reads before it calls postgres::Guard{connection}.advance(claim)
// first.
Verdict set_balance(pqxx::connection& connection, const Claim& claim, int balance) {
  pqxx::work tx{connection};
  const Ruling ruling = postgres::admit_in(tx, claim);
  if (ruling.verdict != Verdict::admitted) return ruling.verdict;  // rolled back; tx could not commit either
  postgres::exec_params(tx, "UPDATE account SET balance = $1 WHERE id = 42", balance);
  tx.commit();
  return ruling.verdict;
}

int run(const std::string& url) {
  pqxx::connection connection{url};
  {
    pqxx::work tx{connection};
    tx.exec("CREATE TABLE IF NOT EXISTS account (id bigint PRIMARY KEY, balance bigint NOT NULL)");
    tx.exec("INSERT INTO account VALUES (42, 100) ON CONFLICT (id) DO UPDATE SET balance = 100");
    tx.commit();
  }
  auto source = open_source(url);
  auto first = source->acquire(Resource{"accounts/42"}, {.ttl = 10s, .wait = 30s});
  if (!first) return std::puts("the lock is busy"), 1;
  std::printf("A writes 70: %s\n", to_string(set_balance(connection, first->claim(), 70)));

  // A stops for too long and loses the lock (here it is taken away); B takes it and writes.
  (void)source->end(Resource{"accounts/42"});
  auto second = source->acquire(Resource{"accounts/42"}, {.ttl = 10s, .wait = 30s});
  if (!second) return std::puts("the lock is busy"), 1;
  std::printf("B writes 50: %s\n", to_string(set_balance(connection, second->claim(), 50)));
  std::printf("A writes 60: %s\n", to_string(set_balance(connection, first->claim(), 60)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::puts("usage: library_postgres postgres://USER@HOST/DATABASE"), 2;
  try {
    return run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "library_postgres: %s\n", error.what());
    return 3;
  }
}
