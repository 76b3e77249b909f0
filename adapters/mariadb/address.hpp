#pragma once

// Address: where a MariaDB or MySQL server is and how to speak to it, from a mariadb:// or mysql:// URL.
//
//   mariadb://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]   TCP
//   mariadb://[USER[:PASSWORD]@]/[DATABASE]?socket=PATH  a Unix socket
//
// DATABASE is the connection's default one, for the service's own tables. Parameters for every such URL:
// schema (the database of the fences: 'fenceguard'), timeout (for one answer, 20s), connect_timeout (2s),
// socket; tls=1, cacert=FILE, cert=FILE, key=FILE: any of them switches TLS on, and then the server's
// certificate and name are checked.
//
// Values; the functions are thread-safe.

#include <chrono>
#include <initializer_list>
#include <string>
#include <string_view>

#include "guard/source/url.hpp"

namespace fenceguard::mariadb {

struct Tls {
  bool is_on = false;
  std::string cacert;
  std::string cert;
  std::string key;
};

struct Address {
  std::string host;  // empty: socket
  unsigned port = 3306;
  std::string socket;  // path
  std::string user;
  std::string password;
  std::string database;               // empty: none
  std::string schema = "fenceguard";  // of the fences
  std::chrono::milliseconds connect_timeout{2'000};
  std::chrono::milliseconds timeout{20'000};
  Tls tls{};
  std::string shown;  // the URL without its password
};

// Throws InvalidInput for a parameter that is neither known to all nor in own, or a URL that is no such URL.
[[nodiscard]] Address address_of(const Url& url, std::initializer_list<std::string_view> own = {});

// A name as it stands in SQL: `name`. Throws InvalidInput for what is no name of 1 to 64 visible characters.
[[nodiscard]] std::string quoted_name(std::string_view name);

}  // namespace fenceguard::mariadb
