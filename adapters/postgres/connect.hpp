#pragma once

// Connections: from a postgres:// URL to an open libpqxx connection whose server is fit to be used. The URL's
// host list, user, password, database and parameters are libpq's own (PostgreSQL documentation, section
// 34.1.1); what fenceguard adds to them is named by each caller.
//
// Thread safety: the functions are; a connection belongs to one thread at a time.

#include <initializer_list>
#include <memory>
#include <pqxx/pqxx>
#include <string>
#include <string_view>

#include "guard/source/url.hpp"

namespace fenceguard::postgres {

// Where to connect, and what may be printed of it.
struct Address {
  std::string conninfo;  // for libpq; holds the password
  std::string shown;     // the URL without its password
};

// Throws InvalidInput for a parameter that is neither libpq's nor in own, or a URL that is no such URL.
[[nodiscard]] Address address_of(const Url& url, std::initializer_list<std::string_view> own = {});

// Opens a connection; statements on it are bounded by no timeout of ours. Throws Unavailable with a sentence
// that never holds the password.
[[nodiscard]] std::unique_ptr<pqxx::connection> connect(const Address& address);

// True if what answers is not the server itself but a pooler before it (PgBouncer): what a session is told,
// LISTEN or a lock of the session, then does not stay with this connection.
[[nodiscard]] bool is_pooled(pqxx::connection& connection);

}  // namespace fenceguard::postgres
