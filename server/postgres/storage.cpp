#include "server/postgres/storage.hpp"

#include <fmt/format.h>
#include <libpq-fe.h>

#include <algorithm>
#include <map>

#include "adapters/postgres/connect.hpp"
#include "adapters/postgres/fences/storage.hpp"
#include "adapters/postgres/session.hpp"
#include "guard/error.hpp"
#include "server/postgres/postgres_service.hpp"

namespace fenceguard::pgwire {
namespace {

constexpr std::uint16_t postgres_port = 5432;
constexpr std::string_view default_folder = "/var/run/postgresql";

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts(1);
  for (const char c : list) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  return parts;
}

using LibpqWords = std::map<std::string, std::string>;

void add_words(PQconninfoOption* read, LibpqWords& words) {
  const std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)> options{read, &PQconninfoFree};
  for (const auto* option = options.get(); option != nullptr && option->keyword != nullptr; ++option)
    if (option->val != nullptr) words[option->keyword] = option->val;
}

// As libpq reads them: the address, and for what it does not say the environment.
LibpqWords words_of(const postgres::Address& address) {
  LibpqWords words;
  add_words(PQconndefaults(), words);
  add_words(PQconninfoParse(address.conninfo.c_str(), nullptr), words);
  return words;
}

// Only a server whose certificate was looked at is worth its encryption; what else libpq offers is not.
std::shared_ptr<const net::TlsContext> tls_to(const std::string& host, LibpqWords& words) {
  const auto& mode = words["sslmode"];
  if (mode.empty() || mode == "disable" || mode == "allow" || mode == "prefer") return nullptr;
  if (mode != "verify-full")
    throw InvalidInput(
        "the data side connects to PostgreSQL with sslmode=verify-full, or in the clear with "
        "sslmode=disable; give one of them in the URL, or --listen none");
  return net::TlsContext::client({words["sslrootcert"], words["sslcert"], words["sslkey"]}, host);
}

std::uint16_t port_of(const std::string& text) {
  if (text.empty()) return postgres_port;
  const auto port = parse_decimal(text);
  if (!port || *port < 1 || *port > 65'535) throw InvalidInput("the port of a postgres: URL is 1 to 65535");
  return static_cast<std::uint16_t>(*port);
}

std::vector<Host> hosts_in(LibpqWords& words) {
  const auto names = split(words["host"]);
  const auto ports = split(words["port"]);
  std::vector<Host> hosts;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto port = port_of(ports[std::min(i, ports.size() - 1)]);
    const auto name = names[i].empty() ? std::string{default_folder} : names[i];
    Host host;
    host.address.port = port;
    if (name.starts_with('/')) {
      host.address.path = fmt::format("{}/.s.PGSQL.{}", name, port);
    } else {
      host.address.host = name;
      host.tls = tls_to(name, words);
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

// Every connection of a client's would be refused for it. A server that cannot be reached yet is asked by
// each of them.
void refuse_pooler(const postgres::Address& address) {
  try {
    if (!postgres::is_pooled(*postgres::connect(address))) return;
  } catch (const Unavailable&) {
    return;
  }
  throw InvalidInput(
      "a pooler (PgBouncer) stands before --storage, and the data side connects to PostgreSQL itself: name "
      "the "
      "server, and put the pooler in front of this sidecar, in session mode; or give --listen none");
}

class PostgresStorage : public Storage, public ServedStorage {
 public:
  PostgresStorage(const Url& url, const StorageOptions& options)
      : storage_{postgres::open_storage(url, options)},
        address_{postgres::address_with_limits(url, {"lock"})},
        jump_max_{options.jump_max} {}

  FenceStore& fences() override { return storage_->fences(); }
  TokenSource* own_source() override { return storage_->own_source(); }
  bool initialises_itself() const noexcept override { return storage_->initialises_itself(); }
  std::shared_ptr<DataService> data_service(const ServiceContext& context) override {
    refuse_pooler(address_);
    PostgresOptions options;
    auto words = words_of(address_);
    options.hosts = hosts_in(words);
    const auto& attributes = words["target_session_attrs"];
    options.relay.needs_primary = attributes == "read-write" || attributes == "primary";
    if (context.limits.body_bytes_max > 0) options.relay.statement_bytes_max = context.limits.body_bytes_max;
    options.relay.unfenced = context.permissions.unfenced;
    options.relay.jump_max = jump_max_;
    options.relay.keys_required = context.keys;
    return std::make_shared<PostgresService>(context, std::move(options));
  }

 private:
  const std::unique_ptr<Storage> storage_;
  const postgres::Address address_;
  const std::int64_t jump_max_;
};

}  // namespace

std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options) {
  return std::make_unique<PostgresStorage>(url, options);
}

}  // namespace fenceguard::pgwire
