#include "adapters/postgres/fences/schema.hpp"

#include <fmt/format.h>

#include <string_view>

#include "guard/error.hpp"

namespace fenceguard::postgres {

extern const std::string_view sql_001_fences;
extern const std::string_view sql_002_rule;
extern const std::string_view sql_003_locks;
extern const std::string_view sql_004_admit;
extern const std::string_view sql_004a_session_claims;
extern const std::string_view sql_005_advance;
extern const std::string_view sql_006_leases;
extern const std::string_view sql_007_protect;
extern const std::string_view sql_007a_operation;
extern const std::string_view sql_007b_observe;
extern const std::string_view sql_008_grants;

int installed_version(pqxx::transaction_base& tx) {
  const auto found = tx.exec("SELECT pg_catalog.to_regprocedure('fenceguard.version()') IS NOT NULL");
  if (!found[0][0].as<bool>()) return 0;
  return tx.exec("SELECT fenceguard.version()")[0][0].as<int>();
}

void require_installed(pqxx::transaction_base& tx) {
  const int version = installed_version(tx);
  if (version == schema_version) return;
  if (version == 0) {
    throw Unavailable(
        "this database has no fences: run 'fenceguard sql postgres | psql', as a role that may create a "
        "schema");
  }
  throw Unavailable(fmt::format(
      "this database has the schema fenceguard in version {}, and this program needs version {}: {}", version,
      schema_version,
      version < schema_version ? "run 'fenceguard sql postgres | psql'" : "use a newer fenceguard"));
}

std::string install_sql() {
  std::string text = "BEGIN;\nSET LOCAL client_min_messages = warning;\n\n";
  for (const auto part :
       {sql_001_fences, sql_002_rule, sql_003_locks, sql_004_admit, sql_004a_session_claims, sql_005_advance,
        sql_006_leases, sql_007_protect, sql_007a_operation, sql_007b_observe, sql_008_grants}) {
    text.append(part).append("\n");
  }
  return text +
         "COMMIT;\n"
         "DO $$ BEGIN RAISE NOTICE 'fenceguard: schema version % is installed', fenceguard.version(); END "
         "$$;\n";
}

}  // namespace fenceguard::postgres
