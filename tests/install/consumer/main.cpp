// Takes a lease from the installed library, and writes under it to a database of its own.

#include <sqlite3.h>

#include <cstdio>
#include <fenceguard/fenceguard.hpp>
#include <fenceguard/sqlite.hpp>

int main() {
  using namespace fenceguard;
  sqlite3* db = nullptr;
  if (sqlite3_open("consumer.db", &db) != SQLITE_OK) return 1;
  sqlite::install_in(db);

  auto source = open_source("sqlite:consumer.db");
  const auto lease = source->acquire(Resource{"accounts/42"});
  if (!lease) return std::puts("the lock of a new file is held"), 1;
  sqlite::Guard guard{db};
  const auto ruling = guard.write(lease->claim(), [](sqlite3* open) {
    sqlite3_exec(open, "CREATE TABLE written (x)", nullptr, nullptr, nullptr);
  });
  if (ruling.verdict != Verdict::admitted) return std::puts("the first claim was refused"), 1;

  const Claim late{lease->claim().resource, lease->claim().token, Holder{"somebody-else"}, {}};
  const bool is_conflict = judge({ruling.fence, 0}, late).verdict == Verdict::conflict;
  sqlite3_close(db);
  return is_conflict ? 0 : 1;
}
