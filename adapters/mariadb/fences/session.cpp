#include "adapters/mariadb/fences/session.hpp"

#include <mysql.h>
#include <poll.h>

namespace fenceguard::mariadb {

bool Session::is_sound() {
  if (!connection_ || !connection_->is_open()) return false;
  pollfd socket{static_cast<int>(mysql_get_socket(connection_->handle())), POLLIN, 0};
  if (poll(&socket, 1, 0) == 0) return true;
  connection_.reset();
  return false;
}

}  // namespace fenceguard::mariadb
