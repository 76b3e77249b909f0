#include "server/products.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "adapters/schemes.hpp"
#include "guard/error.hpp"
#include "guard/store/lane_state.hpp"
#include "guard/store/pending_fencing.hpp"
#include "guard/support/wait_for.hpp"
#include "server/fencing/storage_methods.hpp"
#include "server/proxy/storage.hpp"
#ifdef FENCEGUARD_ETCD
#include "adapters/etcd/fences/storage.hpp"
#endif
#ifdef FENCEGUARD_MARIADB
#include "adapters/mariadb/fences/old_sessions.hpp"
#include "adapters/mariadb/fences/schema.hpp"
#include "adapters/mariadb/fences/storage.hpp"
#endif
#ifdef FENCEGUARD_POSTGRES
#include "adapters/postgres/connect.hpp"
#include "adapters/postgres/fences/old_sessions.hpp"
#include "adapters/postgres/fences/schema.hpp"
#include "server/postgres/storage.hpp"
#endif
#ifdef FENCEGUARD_REDIS
#include "adapters/redis/fences/old_clients.hpp"
#include "adapters/redis/wire/scripts.hpp"
#include "server/resp/storage.hpp"
#endif
#ifdef FENCEGUARD_SQLITE
#include "adapters/sqlite/file/file.hpp"
#include "adapters/sqlite/file/schema.hpp"
#include "adapters/sqlite/storage.hpp"
#endif
#ifdef FENCEGUARD_ZOOKEEPER
#include "adapters/zookeeper/fences/storage.hpp"
#endif

namespace fenceguard {
namespace {

template <class Function>
const Function& offered(const Function& function, const Url& url, std::string_view what) {
  if (!function) throw InvalidInput(fmt::format("{}: names no {}", url.scheme, what));
  return function;
}

}  // namespace

const Product& ProductTable::find(const Url& url) const {
  std::vector<std::string> known;
  for (const auto& product : products_) {
    if (std::find(product.schemes.begin(), product.schemes.end(), url.scheme) != product.schemes.end())
      return product;
    known.insert(known.end(), product.schemes.begin(), product.schemes.end());
  }
  throw InvalidInput(
      fmt::format("unknown scheme '{}:'; known are: {}:", url.scheme, fmt::join(known, ":, ")));
}

std::unique_ptr<TokenSource> ProductTable::open_source(const Url& url) const {
  return offered(find(url).open_source, url, "token source")(url);
}

void ProductTable::require_present(const Url& url) const {
  if (const auto& require = find(url).require_present) require(url);
}

std::unique_ptr<Storage> ProductTable::open_storage(const Url& url, const StorageOptions& options) const {
  return offered(find(url).open_storage, url, "storage")(url, options);
}

Findings ProductTable::examine_source(const Url& url) const {
  return offered(find(url).examine_source, url, "token source")(url);
}

Findings ProductTable::examine_storage(const Url& url) const {
  return offered(find(url).examine_storage, url, "storage")(url);
}

std::string ProductTable::install_sql(std::string_view scheme) const {
  Url url;
  url.scheme = scheme;
  return offered(find(url).install_sql, url, "database to install SQL in")();
}

std::string ProductTable::uninstall_sql(std::string_view scheme) const {
  Url url;
  url.scheme = scheme;
  return offered(find(url).uninstall_sql, url, "database to take SQL away from")();
}

namespace {

#ifdef FENCEGUARD_SQLITE
void finish_in_file(const Url& url, const Claim& claim) {
  const auto storage = sqlite::open_storage(sqlite::path_of(url), {});
  auto& fencing = dynamic_cast<PendingFencing&>(*storage->lane_state());
  (void)wait_for<PendingFencing::CloseResult>(
      [&](Done<PendingFencing::CloseResult> done) { fencing.finish(claim, std::move(done)); });
}
#endif

// NAME of 'user=NAME', for terminate-backends; empty: it is none.
[[maybe_unused]] std::string_view account_of(std::string_view parameter) {
  constexpr std::string_view by_user = "user=";
  return parameter.starts_with(by_user) ? parameter.substr(by_user.size()) : std::string_view{};
}

[[maybe_unused]] void require_other_account(const std::string& user, const Url& url) {
  if (user == url.user)
    throw InvalidInput(fmt::format(
        "--fence-method terminate-backends: '{}' is the user of the URL, whose sessions are ours as "
        "well: give the holders another one",
        user));
}

#ifdef FENCEGUARD_POSTGRES
std::unique_ptr<FenceMethod> open_postgres_method(const Url& url, std::string_view word,
                                                  std::string_view parameter) {
  if (word != "terminate-backends") return nullptr;
  const std::string role{account_of(parameter)};
  if (!parameter.empty() && role.empty())
    throw InvalidInput("--fence-method terminate-backends: only user=ROLE may follow it");
  if (!role.empty()) require_other_account(role, url);
  const auto end = [url, role](const Resource& resource, Token old_token, std::chrono::milliseconds limit) {
    if (!role.empty()) return postgres::terminate_role(url, role, resource, limit);
    return postgres::terminate_backends(url, resource, old_token, limit);
  };
  return std::make_unique<ConnectionsMethod>(std::string{word}, end);
}
#endif

#ifdef FENCEGUARD_MARIADB
std::unique_ptr<FenceMethod> open_mariadb_method(const Url& url, std::string_view word,
                                                 std::string_view parameter) {
  if (word != "terminate-backends") return nullptr;
  const std::string user{account_of(parameter)};
  if (user.empty()) {
    throw InvalidInput(
        "--fence-method terminate-backends: a MariaDB session has no name that a command's environment sets; "
        "give the account that this resource's holders have to themselves: terminate-backends:user=NAME");
  }
  require_other_account(user, url);
  const auto end = [url, user](const Resource&, Token, std::chrono::milliseconds limit) {
    return mariadb::end_sessions(url, user, limit);
  };
  return std::make_unique<ConnectionsMethod>(std::string{word}, end);
}
#endif

#ifdef FENCEGUARD_REDIS
std::unique_ptr<FenceMethod> open_redis_method(const Url& url, std::string_view word,
                                               std::string_view parameter) {
  if (word != "kill-client") return nullptr;
  const auto filter = redis::ClientFilter::parse(parameter);
  const std::string own = url.user.empty() ? "default" : url.user;
  if (filter.user() == own)
    throw InvalidInput(
        fmt::format("--fence-method kill-client: '{}' is the user of the URL, whose connections are ours as "
                    "well: give the "
                    "holders another one",
                    own));
  const auto end = [url, filter](const Resource& resource, Token old_token, std::chrono::milliseconds limit) {
    return redis::kill_clients(url, filter, resource, old_token, limit);
  };
  return std::make_unique<ConnectionsMethod>(std::string{word}, end);
}
#endif

std::vector<Product> all_products() {
  return {
#ifdef FENCEGUARD_SQLITE
      {.schemes = {"sqlite"},
       .open_source = open_source_at,
       .require_present = [](const Url& url) { sqlite::require_present(sqlite::path_of(url)); },
       .open_storage =
           [](const Url& url, const StorageOptions& options) {
             return sqlite::open_storage(sqlite::path_of(url), options);
           },
       .examine_source = sqlite::examine_source,
       .examine_storage = sqlite::examine_storage,
       .install_sql = sqlite::install_sql,
       .finish_holder = finish_in_file},
#endif
#ifdef FENCEGUARD_POSTGRES
      {.schemes = {"postgres", "postgresql"},
       .open_source = open_source_at,
       .open_storage = pgwire::open_storage,
       .examine_source = postgres::examine_source,
       .examine_storage = postgres::examine_storage,
       .install_sql = [] { return postgres::install_sql(); },
       .uninstall_sql = [] { return std::string{"SELECT fenceguard.uninstall();\n"}; },
       .open_fence_method = open_postgres_method,
       .name_sessions = [](const Claim& claim) { return "PGAPPNAME=" + postgres::session_name(claim); },
       .is_pooled =
           [](const Url& url) {
             return postgres::is_pooled(*postgres::connect(postgres::address_of(url, {"lock"})));
           },
       .finish_holder = postgres::finish_holder},
#endif
#ifdef FENCEGUARD_MARIADB
      {.schemes = {"mariadb", "mysql"},
       .open_source = open_source_at,
       .open_storage = mariadb::open_storage,
       .examine_source = mariadb::examine_source,
       .examine_storage = mariadb::examine_storage,
       .install_sql = mariadb::install_sql,
       .uninstall_sql = mariadb::uninstall_sql,
       .open_fence_method = open_mariadb_method,
       .finish_holder = mariadb::finish_holder},
#endif
#ifdef FENCEGUARD_REDIS
      {.schemes = {"redis", "rediss"},
       .open_source = open_source_at,
       .open_storage = resp::open_storage,
       .examine_source = redis::examine_source,
       .examine_storage = redis::examine_storage,
       .install_sql = redis::scripts::functions,
       .open_fence_method = open_redis_method},
      {.schemes = {"redis-quorum"}, .open_source = open_source_at, .examine_source = redis::examine_quorum},
#endif
#ifdef FENCEGUARD_ZOOKEEPER
      {.schemes = {"zookeeper"},
       .open_source = open_source_at,
       .open_storage = zookeeper::open_storage,
       .examine_source = zookeeper::examine_source,
       .examine_storage = zookeeper::examine_storage},
#endif
#ifdef FENCEGUARD_ETCD
      {.schemes = {"etcd"},
       .open_source = open_source_at,
       .open_storage = etcd::open_storage,
       .examine_source = etcd::examine_source,
       .examine_storage = etcd::examine_storage},
#endif
      {.schemes = {"http", "https"},
       .open_storage = proxy::open_storage,
       .needs_state = true,
       .examine_storage = proxy::examine_storage},
  };
}

}  // namespace

const ProductTable& products() {
  static const ProductTable table{all_products()};
  return table;
}

}  // namespace fenceguard
