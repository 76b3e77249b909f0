#include "adapters/sqlite/fences/fence_table.hpp"
#include "adapters/sqlite/file/file.hpp"
#include "adapters/sqlite/guard.hpp"
#include "adapters/sqlite/storage.hpp"
#include "guard/support/wait_for.hpp"
#include "tests/conformance/guard/guard_suite.hpp"
#include "tests/conformance/temp_dir.hpp"

namespace fenceguard::test {
namespace {

using sqlite::Database;
using sqlite::FenceTable;

// Writes the rows that such a namespace has.
void place(sqlite3* connection, const GuardKind::Start& start) {
  FenceTable fences{connection};
  auto row = fences.fresh_namespace(start.floor);
  row.resources = static_cast<std::int64_t>(start.records.size());
  sqlite::execute(connection, "BEGIN");
  for (const auto& [resource, fence] : start.records) {
    row.highest = std::max(row.highest, fence.token.value());
    fences.store(resource.name(), fence);
  }
  fences.store_namespace(row);
  sqlite::execute(connection, "COMMIT");
}

FenceView look(const std::string& path, const Resource& resource) {
  Database database{path, Database::Mode::look};
  FenceTable fences{database.handle()};
  const auto row = fences.load_namespace();
  return {fences.load(resource.name()), row ? row->floor : 0};
}

// The embedded storage: objects beside their fences.
class EmbeddedSpace : public GuardSpace {
 public:
  EmbeddedSpace(const GuardKind::Start& start, std::size_t cache_entries)
      : path_{folder_.file("fenceguard.db")} {
    sqlite::prepare_file(path_, sqlite::Missing::create);
    {
      Database database{path_, Database::Mode::read_write};
      place(database.handle(), start);
    }
    StorageOptions options;
    options.cache_entries = cache_entries;
    storage_ = sqlite::open_storage(path_, options);
  }

  std::unique_ptr<GuardConnection> connect() override { return std::make_unique<Connection>(*storage_); }
  FenceView fence(const Resource& resource) override { return look(path_, resource); }

 private:
  class Connection : public GuardConnection {
   public:
    explicit Connection(Storage& storage) : storage_{storage} {}
    Ruling advance(const Claim& claim) override { return StoreGuard{storage_.fences()}.advance(claim); }
    Ruling write(const Claim& claim, const std::string& value) override {
      const auto report = wait_for<WriteReport>([&](Done<WriteReport> done) {
        storage_.objects()->write(
            claim, {ObjectWrite::Kind::put, claim.resource.name(), value, "text/plain", {}, {}},
            std::move(done));
      });
      return report.ruling;
    }
    std::string read(const Resource& resource) override {
      const auto report = wait_for<ReadReport>([&](Done<ReadReport> done) {
        storage_.objects()->read({resource.name(), std::nullopt, true}, std::move(done));
      });
      return report.object ? report.object->body : "";
    }

   private:
    Storage& storage_;
  };

  TempDir folder_;
  std::string path_;
  std::unique_ptr<Storage> storage_;
};

// The fence in a service's own database, whose table the service writes in the same transaction.
class OwnDatabaseSpace : public GuardSpace {
 public:
  explicit OwnDatabaseSpace(const GuardKind::Start& start) : path_{folder_.file("service.db")} {
    Database database{path_, Database::Mode::create};
    sqlite::install_in(database.handle());
    sqlite::execute(database.handle(), "CREATE TABLE account (name TEXT PRIMARY KEY, value TEXT NOT NULL)");
    place(database.handle(), start);
  }

  std::unique_ptr<GuardConnection> connect() override { return std::make_unique<Connection>(path_); }
  FenceView fence(const Resource& resource) override { return look(path_, resource); }

 private:
  class Connection : public GuardConnection {
   public:
    explicit Connection(const std::string& path)
        : database_{path, Database::Mode::read_write},
          guard_{database_.handle()},
          write_{database_.handle(), "INSERT OR REPLACE INTO account VALUES (?1, ?2)"},
          read_{database_.handle(), "SELECT value FROM account WHERE name = ?1"} {}
    Ruling advance(const Claim& claim) override { return guard_.advance(claim); }
    Ruling write(const Claim& claim, const std::string& value) override {
      return guard_.write(claim, [&](sqlite3*) {
        write_.bind(std::string_view{claim.resource.name()}, std::string_view{value}).run();
      });
    }
    std::string read(const Resource& resource) override {
      auto& row = read_.bind(std::string_view{resource.name()});
      std::string value = row.step() ? std::string{row.text(0)} : "";
      row.reset();
      return value;
    }

   private:
    Database database_;
    sqlite::Guard guard_;
    sqlite::Statement write_;
    sqlite::Statement read_;
  };

  TempDir folder_;
  std::string path_;
};

GuardKind embedded(const std::string& name, std::size_t cache_entries) {
  return {name, [cache_entries](const GuardKind::Start& start) {
            return std::make_unique<EmbeddedSpace>(start, cache_entries);
          }};
}

GuardKind own_database() {
  return {"own_database",
          [](const GuardKind::Start& start) { return std::make_unique<OwnDatabaseSpace>(start); }};
}

INSTANTIATE_TEST_SUITE_P(Sqlite, GuardSuite,
                         testing::Values(embedded("embedded", 1'000), embedded("embedded_without_cache", 0),
                                         own_database()),
                         guard_kind_name);

}  // namespace
}  // namespace fenceguard::test
