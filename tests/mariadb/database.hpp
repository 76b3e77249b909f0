#pragma once

// A database of a test's own, with the fences or without, in the server beside which the test program runs;
// dropped at the end.

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "adapters/mariadb/connection.hpp"
#include "adapters/mariadb/fences/schema.hpp"

namespace fenceguard::mariadb::test {

// What with_server.py says of the server: PORT, SOCKET, CONTROL.
inline std::string server_setting(const std::string& name) {
  const char* value = std::getenv(("FENCEGUARD_MARIADB_" + name).c_str());
  if (value == nullptr) throw std::runtime_error{"run it through tests/mariadb/with_server.py"};
  return value;
}

class Database {
 public:
  enum class Fences { installed, missing };

  explicit Database(Fences fences = Fences::installed)
      : name_{fmt::format("test_{}_{}", getpid(), ++count())} {
    Connection connection{address_of(Url::parse(fmt::format("mariadb://root@127.0.0.1:{}/", port())))};
    connection.run(fmt::format("CREATE DATABASE {} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", name_));
    if (fences == Fences::missing) return;
    connection.run("USE " + name_);
    for (const auto& statement : install_statements()) connection.run(statement);
  }

  ~Database() {
    try {
      connect().run("DROP DATABASE " + name_);
    } catch (const std::exception&) {
      // It goes with the server.
    }
  }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // The fences are in the same database as the data. parameters: '&timeout=3s'. at: another port, of a proxy.
  [[nodiscard]] Url url(const std::string& parameters = "", const std::string& at = port()) const {
    return Url::parse(fmt::format("mariadb://root@127.0.0.1:{0}/{1}?schema={1}{2}", at, name_, parameters));
  }

  [[nodiscard]] Connection connect() const { return Connection{address_of(url())}; }

  // The rows of one statement, on a connection of its own.
  Rows run(const std::string& sql, const Row& arguments = {}) const { return connect().run(sql, arguments); }

 private:
  static std::string port() { return server_setting("PORT"); }
  static std::atomic<int>& count() {
    static std::atomic<int> counter{0};
    return counter;
  }

  std::string name_;
};

}  // namespace fenceguard::mariadb::test
