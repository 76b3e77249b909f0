#pragma once

// A database of a test's own in the server that the test program runs beside; dropped at the end.

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <pqxx/pqxx>
#include <string>
#include <thread>

#include "adapters/postgres/fences/schema.hpp"
#include "guard/source/url.hpp"
#include "tests/postgres/installation.hpp"
#include "tests/process/eventually.hpp"

namespace fenceguard::test {

using postgres::test::server_setting;

class Database {
 public:
  using Fences = postgres::test::Fences;

  explicit Database(Fences fences = Fences::installed)
      : name_{fmt::format("test_{}_{}", getpid(), ++count())} {
    postgres::test::create_database(name_, fences);
  }

  ~Database() {
    try {
      postgres::test::run_sql("postgres", fmt::format("DROP DATABASE {} WITH (FORCE)", name_));
    } catch (const std::exception&) {
      // It goes with the server.
    }
  }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // Another port: that of a proxy.
  [[nodiscard]] std::string conninfo(const std::string& port = "") const {
    return fmt::format("host=127.0.0.1 port={} user=postgres dbname={} sslmode=disable gssencmode=disable",
                       port.empty() ? server_setting("PORT") : port, name_);
  }

  // parameters: '?lock=row'. port: of what stands before the server.
  [[nodiscard]] Url url(const std::string& parameters = "", const std::string& user = "postgres",
                        const std::string& port = server_setting("PORT")) const {
    return Url::parse(fmt::format("postgres://{}@127.0.0.1:{}/{}{}", user, port, name_, parameters));
  }

  [[nodiscard]] std::unique_ptr<pqxx::connection> connect(const std::string& port = "") const {
    return std::make_unique<pqxx::connection>(conninfo(port));
  }

  // The rows of one statement, or script, on a connection of its own.
  pqxx::result run(const std::string& sql) const {
    const auto connection = connect();
    return pqxx::nontransaction{*connection}.exec(sql);
  }

  // The first field; nothing where there is none.
  [[nodiscard]] std::string ask(const std::string& sql) const {
    const auto rows = run(sql);
    return rows.empty() ? "" : rows[0][0].c_str();
  }

 private:
  static std::atomic<int>& count() {
    static std::atomic<int> counter{0};
    return counter;
  }

  std::string name_;
};

}  // namespace fenceguard::test
