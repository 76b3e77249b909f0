#pragma once

// A database with fences and a table account, in which row 42 has a balance of 100.

#include <gtest/gtest.h>

#include "adapters/postgres/guard.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "tests/postgres/database.hpp"

namespace fenceguard::test {

class Accounts : public testing::Test {
 protected:
  Accounts() {
    database_.run(
        "CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0));"
        "INSERT INTO account VALUES (42, 100)");
    connection_ = database_.connect();
  }

  static Claim claim(std::int64_t token, const std::string& holder = "h",
                     const std::string& resource = "accounts/42") {
    return {Resource{resource}, Token{token}, Holder{holder}, std::nullopt};
  }

  // By somebody else.
  void advance(std::int64_t token, const std::string& holder = "h",
               const std::string& resource = "accounts/42") {
    const auto other = database_.connect();
    ASSERT_EQ(postgres::Guard{*other}.advance(claim(token, holder, resource)).verdict, Verdict::admitted);
  }

  static void set_balance(pqxx::transaction_base& tx, int balance) {
    postgres::exec_params(tx, "UPDATE account SET balance = $1 WHERE id = 42", balance);
  }

  [[nodiscard]] int balance() const {
    return std::stoi(database_.ask("SELECT balance FROM account WHERE id = 42"));
  }

  // 'token holder sequence'; '' if there is none.
  [[nodiscard]] std::string fence(const std::string& resource = "accounts/42") const {
    const auto connection = database_.connect();
    pqxx::nontransaction tx{*connection};
    const auto rows = postgres::exec_params(
        tx, "SELECT format('%s %s %s', token, holder, sequence) FROM fenceguard.fence WHERE resource = $1",
        resource);
    return rows.empty() ? "" : rows[0][0].c_str();
  }

  Database database_{Database::Fences::installed};
  std::unique_ptr<pqxx::connection> connection_;
};

}  // namespace fenceguard::test
