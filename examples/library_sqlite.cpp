// A service with its own SQLite database: the claim is judged in the very transaction that writes, so there
// is no moment between the check and the write.
//
// usage: library_sqlite FILE
// Leases and data are in the same file here; the leases may as well be anywhere else that open_source()
// knows.

#include <sqlite3.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

#include "adapters/schemes.hpp"
#include "adapters/sqlite/guard.hpp"
#include "guard/lease.hpp"

using namespace fenceguard;
using namespace std::chrono_literals;

namespace {

void execute(sqlite3* db, const std::string& sql) {
  if (sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    throw std::runtime_error{sqlite3_errmsg(db)};
  }
}

// Writes the balance of account 42, if the claim still stands. What is read in the transaction after
// admit_in() is safe too; a service that reads before it calls sqlite::Guard{db}.advance(claim) first.
Verdict set_balance(sqlite3* db, const Claim& claim, int balance) {
  sqlite::Transaction tx{db};
  const Ruling ruling = sqlite::admit_in(tx, claim);
  if (ruling.verdict != Verdict::admitted) return ruling.verdict;  // rolled back; tx could not commit either
  execute(db, "UPDATE account SET balance = " + std::to_string(balance) + " WHERE id = 42");
  tx.commit();
  return ruling.verdict;
}

int run(const std::string& file) {
  sqlite3* opened = nullptr;
  if (sqlite3_open(file.c_str(), &opened) != SQLITE_OK) throw std::runtime_error{"cannot open " + file};
  const std::unique_ptr<sqlite3, int (*)(sqlite3*)> db{opened, sqlite3_close};
  sqlite::install_in(opened);
  execute(opened, "CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)");
  execute(opened, "INSERT INTO account VALUES (42, 100) ON CONFLICT DO UPDATE SET balance = 100");

  auto source = open_source("sqlite:" + file);
  auto first = source->acquire(Resource{"accounts/42"}, {.ttl = 10s, .wait = 30s});
  if (!first) return std::puts("the lock is busy"), 1;
  std::printf("A writes 70: %s\n", to_string(set_balance(opened, first->claim(), 70)));

  // A stops for too long and loses the lock (here it is taken away); B takes it and writes.
  (void)source->end(Resource{"accounts/42"});
  auto second = source->acquire(Resource{"accounts/42"}, {.ttl = 10s, .wait = 30s});
  if (!second) return std::puts("the lock is busy"), 1;
  std::printf("B writes 50: %s\n", to_string(set_balance(opened, second->claim(), 50)));
  std::printf("A writes 60: %s\n", to_string(set_balance(opened, first->claim(), 60)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::puts("usage: library_sqlite FILE"), 2;
  try {
    return run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "library_sqlite: %s\n", error.what());
    return 3;
  }
}
