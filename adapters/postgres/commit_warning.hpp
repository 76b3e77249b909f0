#pragma once

// A commit that the server warns of. Where a wait for the synchronous standby is cancelled (by
// pg_cancel_backend(), or because the server goes down), PostgreSQL answers COMMIT with success and a
// WARNING: the transaction is there now and may be gone after a failover. So a COMMIT that comes with any
// warning is not known to be one.
//
// Thread safety: that of the connection.

#include <fmt/format.h>

#include <pqxx/pqxx>
#include <string>

#include "adapters/postgres/pqxx_versions.hpp"

namespace fenceguard::postgres {

// To be sent before: nothing less than a warning then reaches the client, and every warning does, whatever
// the session says. Holds until the transaction ends.
inline constexpr const char* hear_warnings_sql = "SET LOCAL client_min_messages = warning";

// The same for what the caller's own statement travels with, whose triggers may warn of anything: no warning
// reaches the client where the server has no synchronous standbys. As it was before the statement: when that
// is over, they may have been taken off the configuration.
inline constexpr const char* hear_standby_sql =
    "SELECT pg_catalog.set_config('client_min_messages', CASE "
    "pg_catalog.current_setting('synchronous_standby_names') WHEN '' THEN 'error' ELSE 'warning' END, true)";

// send(), which sends a COMMIT or what ends with one. Throws pqxx::in_doubt_error if it came with a warning.
// REQUIRES: one of the above was sent, in this transaction.
template <class Send>
auto unless_warned(AnyConnection& connection, const Send& send) {
  const Warnings warnings{connection};
  if constexpr (std::is_void_v<decltype(send())>) {
    send();
    if (!warnings.first().empty()) throw pqxx::in_doubt_error{warnings.first()};
  } else {
    auto answer = send();
    if (!warnings.first().empty()) throw pqxx::in_doubt_error{warnings.first()};
    return answer;
  }
}

}  // namespace fenceguard::postgres
