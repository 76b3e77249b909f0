#pragma once

// A database with account (id, balance), in which 42 has 100, and the ways to look at it.

#include <gtest/gtest.h>

#include "adapters/mariadb/guard.hpp"
#include "guard/error.hpp"
#include "tests/mariadb/database.hpp"

namespace fenceguard::mariadb::test {

class Accounts : public testing::Test {
 protected:
  Accounts() {
    database_.run("CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL) ENGINE = InnoDB");
    database_.run("INSERT INTO account VALUES (42, 100)");
  }

  static Claim claim(std::int64_t token, const std::string& holder = "h") {
    return {Resource{"accounts/42"}, Token{token}, Holder{holder}, std::nullopt};
  }
  static void set_balance(Connection& connection, int value) {
    connection.run("UPDATE account SET balance = ? WHERE id = 42", {std::to_string(value)});
  }
  [[nodiscard]] int balance() const { return std::stoi(*database_.run("SELECT balance FROM account")[0][0]); }
  [[nodiscard]] std::string highest() const {
    const auto rows = database_.run("SELECT token FROM fences");
    return rows.empty() ? "" : *rows[0][0];
  }

  Database database_;
  Connection connection_{database_.connect()};
};

}  // namespace fenceguard::mariadb::test
