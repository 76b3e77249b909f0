#pragma once

// The PostgreSQL server beside which a test program runs (tests/postgres/with_server.py), and databases in
// it.

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <pqxx/pqxx>
#include <stdexcept>
#include <string>
#include <thread>

#include "adapters/postgres/fences/schema.hpp"
#include "guard/source/url.hpp"
#include "guard/support/clock.hpp"
#include "tests/postgres/installation.hpp"
#include "tests/process/eventually.hpp"

namespace fenceguard::test {

using postgres::test::server_setting;

inline std::string server_port() {
  return server_setting("PORT");
}

// Moves the server: 'stop immediate', 'start', 'restart fast'. Returns when it is done.
inline void move_server(const std::string& line) {
  const std::string path = server_setting("CONTROL");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  char answer[200]{};
  const bool is_sent = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                       write(fd, (line + "\n").data(), line.size() + 1) > 0 &&
                       read(fd, answer, sizeof answer - 1) > 0;
  close(fd);
  if (!is_sent || std::string_view{answer} != "ok\n") throw std::runtime_error{line + ": " + answer};
}

// Runs SQL as the superuser, and answers the first value of the last statement.
inline std::string run_sql(const std::string& database, const std::string& sql) {
  const auto rows = postgres::test::run_sql(database, sql);
  return rows.empty() || rows.columns() == 0 || rows[0][0].is_null() ? "" : rows[0][0].as<std::string>();
}

// A fresh database, with the fences installed or not, that is dropped at the end.
class Database {
 public:
  using Fences = postgres::test::Fences;

  explicit Database(Fences fences = Fences::installed) {
    static std::atomic<int> next{0};
    name_ = fmt::format("source_{}_{}", getpid(), ++next);
    postgres::test::create_database(name_, fences);
  }
  ~Database() {
    try {
      run_sql("postgres", fmt::format("DROP DATABASE {} WITH (FORCE)", name_));
    } catch (const std::exception&) {
      // It goes with the server.
    }
  }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  std::string run(const std::string& sql) const { return run_sql(name_, sql); }

  // parameters: '?lock=row'. port: of what stands before the server.
  [[nodiscard]] Url url(const std::string& parameters = "", const std::string& user = "postgres",
                        const std::string& port = server_port()) const {
    return Url::parse(fmt::format("postgres://{}@127.0.0.1:{}/{}{}", user, port, name_, parameters));
  }

 private:
  std::string name_;
};

}  // namespace fenceguard::test
