#pragma once

// A database of the test's own with the fences installed, in the server that the test program was started
// with.

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <pqxx/pqxx>
#include <string>

#include "adapters/postgres/fences/schema.hpp"
#include "adapters/postgres/fences/storage.hpp"
#include "guard/store/storage.hpp"
#include "guard/support/wait_for.hpp"
#include "tests/postgres/installation.hpp"
#include "tests/process/eventually.hpp"

namespace fenceguard::postgres::test {

inline constexpr std::chrono::seconds limit{30};

inline void wait_until(const std::function<bool()>& condition) {
  fenceguard::test::wait_until(condition, limit);
}

class Database {
 public:
  Database() {
    static std::atomic<int> number{0};
    name_ = fmt::format("storage_{}_{}", ::getpid(), ++number);
    create_database(name_, Fences::installed);
  }

  // port: of a proxy before the server; 0: the server's own.
  [[nodiscard]] Url url(int port = 0) const {
    Url url = Url::parse(server_setting("URL"));
    url.path = "/" + name_;
    if (port != 0) url.authority = fmt::format("127.0.0.1:{}", port);
    return url;
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::unique_ptr<Storage> open(const StorageOptions& options = {}) const {
    return open_storage(url(), options);
  }
  [[nodiscard]] std::unique_ptr<pqxx::connection> connect() const {
    const Url here = url();
    return std::make_unique<pqxx::connection>(
        fmt::format("postgres://{}@{}/{}", here.user, here.authority, name_));
  }
  // The first value of the answer, as text.
  std::string run(const std::string& sql) const {
    const auto connection = connect();
    pqxx::nontransaction tx{*connection};
    const auto rows = tx.exec(sql);
    return rows.empty() || rows[0][0].is_null() ? "" : rows[0][0].as<std::string>();
  }
  // For sessions that come later.
  void set(const std::string& setting, const std::string& value) const {
    run(fmt::format("ALTER DATABASE {} SET {} = '{}'", name_, setting, value));
  }
  // Returns when so many sessions wait for an advisory lock.
  void wait_until_waiting(const std::string& sessions = "1") const {
    wait_until([&] {
      return run("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = "
                 "current_database()") == sessions;
    });
  }

 private:
  std::string name_;
};

[[nodiscard]] inline Claim claim(const std::string& resource, std::int64_t token,
                                 const std::string& holder = "h") {
  return {Resource{resource}, Token{token}, Holder{holder}, std::nullopt};
}

[[nodiscard]] inline Ruling advance(Storage& storage, const Claim& claim) {
  return StoreGuard{storage.fences()}.advance(claim);
}

[[nodiscard]] inline FenceView show(Storage& storage, const std::string& resource) {
  return wait_for<FenceView>(
      [&](Done<FenceView> done) { storage.fences().show(Resource{resource}, std::move(done)); });
}

}  // namespace fenceguard::postgres::test
