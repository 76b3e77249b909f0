#pragma once

// The PostgreSQL server beside which a test program runs (tests/postgres/with_server.py).

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

#include "guard/support/clock.hpp"
#include "tests/postgres/database.hpp"
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

}  // namespace fenceguard::test
