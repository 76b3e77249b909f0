#include "demo/clients/clients.hpp"

#include <fmt/format.h>
#include <libpq-fe.h>

#include "adapters/postgres/connect.hpp"
#include "adapters/postgres/errors.hpp"
#include "adapters/postgres/fences/schema.hpp"
#include "adapters/postgres/guard.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "demo/clients/psql.hpp"

namespace fenceguard::postgres {
namespace {

class TableClient : public FencedClient {
 public:
  TableClient(const Url& url, const std::string& place)
      : connection_{connect(address_of(url, {"lock"}))},
        quiet_{*connection_},
        schema_{connection_->quote_name(place)},
        table_{schema_ + ".accounts"} {
    run("looking for the fences", [](pqxx::work& tx) { require_installed(tx); });
  }

  void make_place() override {
    run("making a table for the demonstration", [this](pqxx::work& tx) {
      tx.exec(fmt::format("CREATE SCHEMA {}", schema_));
      tx.exec(fmt::format("CREATE TABLE {} (path text PRIMARY KEY, body text NOT NULL)", table_));
    });
  }

  void remove(const std::string& /*path*/) override {
    run("removing the demonstration's table",
        [this](pqxx::work& tx) { tx.exec(fmt::format("DROP SCHEMA IF EXISTS {} CASCADE", schema_)); });
  }

  std::optional<std::string> read(const std::string& path) override {
    std::optional<std::string> body;
    run("reading an account", [&](pqxx::work& tx) { body = load(tx, path); });
    return body;
  }

  void write(const std::string& path, const std::string& body) override {
    run("writing an account", [&](pqxx::work& tx) { store(tx, path, body); });
  }

  fenceguard::FencedRead read(const Claim& claim, const std::string& path) override {
    std::optional<std::string> body;
    const auto ruling = Guard{*connection_}.write(claim, [&](pqxx::work& tx) { body = load(tx, path); });
    return {ruling, std::move(body)};
  }

  Ruling write(const Claim& claim, const std::string& path, const std::string& body) override {
    return Guard{*connection_}.write(claim, [&](pqxx::work& tx) { store(tx, path, body); });
  }

 private:
  template <class Function>
  void run(std::string_view doing, Function&& function) {
    Stage stage = Stage::before_commit;
    try {
      pqxx::work tx{*connection_};
      function(tx);
      stage = Stage::at_commit;
      tx.commit();
    } catch (...) {
      raise_current(stage, doing);
    }
  }

  std::optional<std::string> load(pqxx::work& tx, const std::string& path) const {
    const auto rows = exec_params(tx, fmt::format("SELECT body FROM {} WHERE path = $1", table_), path);
    if (rows.empty()) return std::nullopt;
    return rows[0][0].as<std::string>();
  }

  void store(pqxx::work& tx, const std::string& path, const std::string& body) const {
    exec_params(tx,
                fmt::format("INSERT INTO {} VALUES ($1, $2) ON CONFLICT (path) DO UPDATE SET"
                            " body = excluded.body",
                            table_),
                path, body);
  }

  std::unique_ptr<pqxx::connection> connection_;
  Quiet quiet_;
  std::string schema_;
  std::string table_;
};

}  // namespace

std::unique_ptr<FencedClient> open_fenced_client(const Url& url, const std::string& place) {
  return std::make_unique<TableClient>(url, place);
}

// In the environment: the URL may hold a password, and every user of the machine can read arguments.
demo::PsqlOptions psql_options(const Url& url, const std::string& place, const std::string& path,
                               const std::string& sidecar) {
  demo::PsqlOptions options{.environment = {}, .table = place + ".accounts", .resource = path};
  const auto address = address_of(url, {"lock"});
  const std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)> read{
      PQconninfoParse(address.conninfo.c_str(), nullptr), &PQconninfoFree};
  for (const auto* option = read.get(); option != nullptr && option->keyword != nullptr; ++option)
    if (option->val != nullptr && option->envvar != nullptr)
      options.environment[option->envvar] = option->val;
  if (sidecar.empty()) return options;
  const auto colon = sidecar.rfind(':');
  options.environment["PGHOST"] = sidecar.substr(0, colon);
  options.environment["PGPORT"] = sidecar.substr(colon + 1);
  options.environment["PGSSLMODE"] = "disable";
  options.environment.erase("PGHOSTADDR");
  return options;
}

}  // namespace fenceguard::postgres
