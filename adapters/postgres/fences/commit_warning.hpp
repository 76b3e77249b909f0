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

// The same for what the caller's own statement travels with, whose triggers may warn of anything: a
// condition, always true. The session keeps in mind whether the server had no synchronous standbys then.
inline constexpr const char* hear_standby_sql =
    "(pg_catalog.set_config('client_min_messages', 'warning', true) IS NOT NULL "
    "AND pg_catalog.set_config('fenceguard.unawaited', "
    "CASE pg_catalog.current_setting('synchronous_standby_names') WHEN '' "
    "THEN extract(epoch FROM pg_catalog.pg_conf_load_time())::pg_catalog.text ELSE '' END, false) IS NOT "
    "NULL)";

// send(), which sends a COMMIT or what ends with one. Throws pqxx::in_doubt_error if it came with a warning.
// REQUIRES: hear_warnings_sql was sent, in this transaction.
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

// The same after hear_standby_sql: a warning counts unless the server had no synchronous standbys, and has
// read no other configuration since: there may have been one just for the time of the wait.
template <class Send>
auto unless_warned_by_standby(pqxx::transaction_base& tx, const Send& send) {
  std::string warned;
  const auto answer = [&] {
    const Warnings warnings{tx.conn()};
    auto result = send();
    warned = warnings.first();
    return result;
  }();
  if (warned.empty()) return answer;
  std::string is_unawaited;
  try {
    is_unawaited =
        tx.exec(
              "SELECT pg_catalog.current_setting('fenceguard.unawaited', true) OPERATOR(pg_catalog.=) "
              "extract(epoch FROM pg_catalog.pg_conf_load_time())::pg_catalog.text")[0][0]
            .c_str();
  } catch (const std::exception&) {
    // It was written, and the connection tells no more.
  }
  if (is_unawaited != "t") throw pqxx::in_doubt_error{warned};
  return answer;
}

}  // namespace fenceguard::postgres
