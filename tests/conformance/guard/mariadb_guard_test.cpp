#include <fmt/format.h>

#include "adapters/mariadb/fences/fence_table.hpp"
#include "adapters/mariadb/guard.hpp"
#include "tests/conformance/guard/guard_suite.hpp"
#include "tests/mariadb/database.hpp"

namespace fenceguard::test {
namespace {

// How a service writes: each of the ways must give the same rulings.
enum class Way { own_transaction, guard };

constexpr const char* upsert =
    "INSERT INTO account VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)";

class WaysSpace : public GuardSpace {
 public:
  WaysSpace(Way way, std::string level, const GuardKind::Start& start) : way_{way}, level_{std::move(level)} {
    look_.run("CREATE TABLE account (name VARBINARY(512) PRIMARY KEY, value TEXT NOT NULL) ENGINE = InnoDB");
    if (start.floor > 0) look_.call("init", {std::to_string(start.floor)});
    for (const auto& [resource, fence] : start.records) {
      Row row{resource.name(), to_string(fence.token),   fence.holder.id(),
              std::nullopt,    fence.closed ? "1" : "0", fence.token.value() < start.floor ? "1" : "0"};
      if (fence.sequence) row[3] = to_string(*fence.sequence);
      look_.run("INSERT INTO fences VALUES (CAST(? AS BINARY), ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))", row);
    }
  }

  std::unique_ptr<GuardConnection> connect() override {
    return std::make_unique<Client>(way_, level_, database_.connect());
  }

  FenceView fence(const Resource& resource) override { return mariadb::view_of(look_, resource); }

 private:
  using Row = mariadb::Row;

  class Client : public GuardConnection {
   public:
    Client(Way way, const std::string& level, mariadb::Connection connection)
        : way_{way}, connection_{std::move(connection)} {
      connection_.run("SET SESSION TRANSACTION ISOLATION LEVEL " + level);
    }

    // Nobody is turned away who only waits for a machine that hesitates.
    Ruling advance(const Claim& claim) override { return guard_.advance(claim); }

    Ruling write(const Claim& claim, const std::string& value) override {
      const auto put = [&](mariadb::Connection& open) { open.run(upsert, {claim.resource.name(), value}); };
      if (way_ == Way::guard) return guard_.write(claim, put);
      const auto advanced = guard_.advance(claim);
      if (advanced.verdict != Verdict::admitted) return advanced;
      connection_.run("START TRANSACTION");
      auto ruling = mariadb::admit_in(connection_, claim);
      if (ruling.verdict == Verdict::admitted) {
        put(connection_);
        mariadb::commit(connection_, claim);
      } else {
        connection_.run(ruling.verdict == Verdict::duplicate ? "COMMIT" : "ROLLBACK");
      }
      return ruling;
    }

    std::string read(const Resource& resource) override {
      const auto rows = connection_.run("SELECT value FROM account WHERE name = ?", {resource.name()});
      return rows.empty() ? "" : *rows[0][0];
    }

   private:
    Way way_;
    mariadb::Connection connection_;
    mariadb::Guard guard_{connection_, {.drain = std::chrono::seconds{60}}};
  };

  Way way_;
  std::string level_;
  mariadb::test::Database database_;
  mariadb::Connection look_{database_.connect()};
};

GuardKind kind(const std::string& name, Way way, const std::string& level) {
  return {name,
          [=](const GuardKind::Start& start) { return std::make_unique<WaysSpace>(way, level, start); }};
}

INSTANTIATE_TEST_SUITE_P(
    Mariadb, GuardSuite,
    testing::Values(kind("guard", Way::guard, "REPEATABLE READ"),
                    kind("own_transaction_repeatable_read", Way::own_transaction, "REPEATABLE READ"),
                    kind("own_transaction_read_committed", Way::own_transaction, "READ COMMITTED"),
                    kind("own_transaction_serializable", Way::own_transaction, "SERIALIZABLE")),
    guard_kind_name);

}  // namespace
}  // namespace fenceguard::test
