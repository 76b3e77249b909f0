#include <fmt/format.h>

#include "adapters/mariadb/errors.hpp"
#include "adapters/mariadb/guard.hpp"
#include "demo/clients/clients.hpp"

namespace fenceguard::mariadb {
namespace {

// A table in the database that the URL names, or beside the fences.
class TableClient : public FencedClient {
 public:
  TableClient(const Url& url, const std::string& place) : TableClient{address_of(url, {"lock"}), place} {}

  void make_place() override {
    run("making a table for the demonstration",
        fmt::format(
            "CREATE TABLE {} (path VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, body "
            "LONGTEXT CHARACTER SET utf8mb4 NOT NULL) ENGINE = InnoDB",
            table_));
  }

  void remove(const std::string& /*path*/) override {
    run("removing the demonstration's table", fmt::format("DROP TABLE IF EXISTS {}", table_));
  }

  std::optional<std::string> read(const std::string& path) override {
    return mapped(Stage::before_commit, "reading an account", [&] { return load(connection_, path); });
  }

  void write(const std::string& path, const std::string& body) override {
    mapped(Stage::at_commit, "writing an account", [&] { return store(connection_, path, body); });
  }

  fenceguard::FencedRead read(const Claim& claim, const std::string& path) override {
    std::optional<std::string> body;
    const auto ruling =
        Guard{connection_}.read(claim, [&](Connection& connection) { body = load(connection, path); });
    return {ruling, std::move(body)};
  }

  Ruling write(const Claim& claim, const std::string& path, const std::string& body) override {
    return Guard{connection_}.write(claim, [&](Connection& connection) { store(connection, path, body); });
  }

 private:
  TableClient(const Address& address, const std::string& place)
      : connection_{address},
        table_{fmt::format("{}.{}", quoted_name(address.database.empty() ? address.schema : address.database),
                           quoted_name(place + "_accounts"))} {
    run("looking for the fences",
        fmt::format("SELECT n.floor_token FROM {}.namespace n", quoted_name(address.schema)));
  }

  void run(std::string_view doing, const std::string& sql) {
    mapped(Stage::at_commit, doing, [&] { return connection_.run(sql); });
  }

  std::optional<std::string> load(Connection& connection, const std::string& path) const {
    const auto rows = connection.run(fmt::format("SELECT body FROM {} WHERE path = ?", table_), {path});
    if (rows.empty()) return std::nullopt;
    return rows[0][0];
  }

  Rows store(Connection& connection, const std::string& path, const std::string& body) const {
    return connection.run(
        fmt::format("INSERT INTO {} VALUES (?, ?) ON DUPLICATE KEY UPDATE body = VALUES(body)", table_),
        {path, body});
  }

  Connection connection_;
  const std::string table_;
};

}  // namespace

std::unique_ptr<FencedClient> open_fenced_client(const Url& url, const std::string& place) {
  return std::make_unique<TableClient>(url, place);
}

}  // namespace fenceguard::mariadb
