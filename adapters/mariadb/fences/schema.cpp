#include "adapters/mariadb/fences/schema.hpp"

#include <string_view>

namespace fenceguard::mariadb {

extern const std::string_view sql_000_database;
extern const std::string_view sql_001_fences;
extern const std::string_view sql_002_rule;
extern const std::string_view sql_003_admit;
extern const std::string_view sql_004_advance;
extern const std::string_view sql_005_leases;
extern const std::string_view sql_006_protect;

namespace {

std::string without_database() {
  std::string text;
  for (const auto part :
       {sql_001_fences, sql_002_rule, sql_003_admit, sql_004_advance, sql_005_leases, sql_006_protect})
    text += part;
  return text;
}

}  // namespace

std::string install_sql() {
  return "DELIMITER //\n" + std::string{sql_000_database} + without_database() + "DELIMITER ;\n";
}

std::string uninstall_sql() {
  return "DROP DATABASE IF EXISTS fenceguard;\n";
}

std::vector<std::string> install_statements() {
  constexpr std::string_view end = "\n//\n";
  const auto text = without_database();
  std::vector<std::string> statements;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto stop = text.find(end, begin);
    if (stop == std::string::npos) break;
    statements.push_back(text.substr(begin, stop - begin));
    begin = stop + end.size();
  }
  return statements;
}

}  // namespace fenceguard::mariadb
