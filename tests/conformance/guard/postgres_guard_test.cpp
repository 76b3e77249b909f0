#include <fmt/format.h>

#include "adapters/postgres/guard.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "tests/conformance/guard/guard_suite.hpp"
#include "tests/postgres/database.hpp"

namespace fenceguard::test {
namespace {

// How a service writes: each of the ways must give the same rulings.
enum class Way { own_transaction, several, guard, one_statement };

constexpr const char* upsert =
    "INSERT INTO account VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";

class WaysSpace : public GuardSpace {
 public:
  WaysSpace(Way way, const GuardKind::Start& start) : way_{way} {
    // Nobody is cut who only waits for a machine that hesitates.
    database_.run(fmt::format("ALTER DATABASE {} SET fenceguard.drain = '60s'", database_.name()));
    database_.run("CREATE TABLE account (name text PRIMARY KEY, value text NOT NULL)");
    if (start.floor > 0) database_.run(fmt::format("SELECT fenceguard.init({})", start.floor));
    pqxx::work tx{*look_};
    for (const auto& [resource, fence] : start.records) {
      postgres::exec_params(tx,
                            "INSERT INTO fenceguard.fences (resource, token, holder, sequence, closed) "
                            "VALUES ($1, $2, $3, $4::bigint, $5)",
                            resource.name(), fence.token.value(), fence.holder.id(),
                            fence.sequence ? to_string(*fence.sequence).c_str() : nullptr, fence.closed);
    }
    tx.commit();
  }

  std::unique_ptr<GuardConnection> connect() override {
    return std::make_unique<Connection>(way_, database_.connect());
  }

  FenceView fence(const Resource& resource) override {
    pqxx::nontransaction tx{*look_};
    FenceView view{std::nullopt, tx.exec("SELECT floor FROM fenceguard.floor")[0][0].as<std::int64_t>()};
    const auto rows = postgres::exec_params(
        tx, "SELECT token, holder, sequence, closed FROM fenceguard.fence WHERE resource = $1",
        resource.name());
    if (rows.empty()) return view;
    const auto row = rows[0];
    view.record =
        Fence{Token{row[0].as<std::int64_t>()}, Holder{row[1].c_str()}, std::nullopt, row[3].as<bool>()};
    if (!row[2].is_null()) view.record->sequence = Sequence{row[2].as<std::int64_t>()};
    return view;
  }

 private:
  class Connection : public GuardConnection {
   public:
    Connection(Way way, std::unique_ptr<pqxx::connection> connection)
        : way_{way}, connection_{std::move(connection)}, guard_{*connection_} {}

    Ruling advance(const Claim& claim) override { return guard_.advance(claim); }

    Ruling write(const Claim& claim, const std::string& value) override {
      const auto& name = claim.resource.name();
      if (way_ == Way::guard) {
        return guard_.write(claim, [&](pqxx::work& tx) { postgres::exec_params(tx, upsert, name, value); });
      }
      if (way_ == Way::one_statement) return guard_.execute(claim, upsert, {name, value}).ruling;
      pqxx::work tx{*connection_};
      const auto ruling = way_ == Way::several ? postgres::admit_all_in(tx, {&claim, 1}).front()
                                               : postgres::admit_in(tx, claim);
      if (ruling.verdict != Verdict::admitted) return ruling;
      postgres::exec_params(tx, upsert, name, value);
      tx.commit();
      return ruling;
    }

    std::string read(const Resource& resource) override {
      pqxx::nontransaction tx{*connection_};
      const auto rows =
          postgres::exec_params(tx, "SELECT value FROM account WHERE name = $1", resource.name());
      return rows.empty() ? "" : rows[0][0].c_str();
    }

   private:
    Way way_;
    std::unique_ptr<pqxx::connection> connection_;
    postgres::Guard guard_;
  };

  Way way_;
  Database database_{Database::Fences::installed};
  std::unique_ptr<pqxx::connection> look_{database_.connect()};
};

GuardKind kind(const std::string& name, Way way) {
  return {name, [way](const GuardKind::Start& start) { return std::make_unique<WaysSpace>(way, start); }};
}

INSTANTIATE_TEST_SUITE_P(Postgres, GuardSuite,
                         testing::Values(kind("own_transaction", Way::own_transaction),
                                         kind("several_claims", Way::several), kind("guard", Way::guard),
                                         kind("one_statement", Way::one_statement)),
                         guard_kind_name);

}  // namespace
}  // namespace fenceguard::test
