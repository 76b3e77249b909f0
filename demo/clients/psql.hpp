#pragma once

// Psql: psql as the client of an account in PostgreSQL. Each time that it reads it connects anew, under a
// claim with PGOPTIONS as 'fenceguard exec' gives them, and writes in the same session.
//
// Not thread-safe.

#include <map>
#include <string>

#include "demo/clients/account_cli.hpp"

namespace fenceguard::demo {

struct PsqlOptions {
  std::map<std::string, std::string> environment{};  // where it connects to
  std::string table{};                               // of the accounts, as it stands in SQL
  std::string resource{};                            // the account
};

class Psql : public AccountCli {
 public:
  // REQUIRES: the harness outlives it.
  Psql(Harness& harness, PsqlOptions options) : harness_{harness}, options_{std::move(options)} {}

 private:
  void ask(const boost::json::object& request) override;
  [[nodiscard]] boost::json::object answer() override;
  void connect(const boost::json::object& request);

  Harness& harness_;
  const PsqlOptions options_;
  bool is_read_ = false;
};

}  // namespace fenceguard::demo
