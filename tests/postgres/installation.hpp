#pragma once

// What databases of tests are made from. Installing takes longer than copying what was installed.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <pqxx/pqxx>
#include <stdexcept>
#include <string>

#include "adapters/postgres/fences/schema.hpp"

namespace fenceguard::postgres::test {

// The SQL that installs the schema: the plain one, or the extension where the tests run with that.
inline std::string installation() {
  return std::getenv("FENCEGUARD_POSTGRES_FAST") == nullptr ? install_sql() : "CREATE EXTENSION fenceguard";
}

enum class Fences { installed, missing };

// What with_server.py says of the server beside which the program runs: PORT, URL, …
inline std::string server_setting(const std::string& name) {
  const char* value = std::getenv(("FENCEGUARD_POSTGRES_" + name).c_str());
  if (value == nullptr) throw std::runtime_error{"run it through tests/postgres/with_server.py"};
  return value;
}

// Runs SQL as the superuser, and answers its rows.
inline pqxx::result run_sql(const std::string& database, const std::string& sql) {
  pqxx::connection connection{
      fmt::format("host=127.0.0.1 port={} user=postgres dbname={}", server_setting("PORT"), database)};
  return pqxx::nontransaction{connection}.exec(sql);
}

// Makes an empty database, with the fences or without.
inline void create_database(const std::string& name, Fences fences) {
  const auto create = [](const std::string& made, const std::string& from) {
    run_sql("postgres", fmt::format("CREATE DATABASE {} TEMPLATE {}", made, from));
  };
  static const std::string installed = [&] {
    const auto made = fmt::format("template_{}", getpid());
    create(made, "template0");
    run_sql(made, "SET client_min_messages = warning;" + installation());
    return made;
  }();
  create(name, fences == Fences::installed ? installed : "template0");
}

}  // namespace fenceguard::postgres::test
