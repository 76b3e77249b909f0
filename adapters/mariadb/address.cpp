#include "adapters/mariadb/address.hpp"

#include <fmt/format.h>

#include <vector>

#include "guard/error.hpp"
#include "guard/support/text.hpp"
#include "guard/token.hpp"

namespace fenceguard::mariadb {
namespace {

constexpr std::chrono::milliseconds timeout_min{1'000};  // the client library counts in seconds
constexpr std::chrono::milliseconds timeout_max{600'000};
constexpr std::size_t name_max = 64;

void read_host(Address& address, const Url& url) {
  std::string_view host = url.authority;
  const bool is_v6 = host.starts_with('[');
  const auto colon = is_v6 ? host.find("]:") : host.rfind(':');
  if (colon != host.npos) {
    const auto port = parse_decimal(host.substr(colon + (is_v6 ? 2 : 1)));
    if (!port || *port < 1 || *port > 65'535)
      throw InvalidInput(fmt::format("{}'s port is 1 to 65535", url.kind()));
    address.port = static_cast<unsigned>(*port);
    host = host.substr(0, colon + (is_v6 ? 1 : 0));
  }
  if (is_v6 && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.find_first_of(" \t\"\\@,[]") != host.npos)
    throw InvalidInput(fmt::format("{}'s host reads HOST or HOST:PORT, and this is '{}'", url.kind(), host));
  address.host = host;
}

}  // namespace

std::string quoted_name(std::string_view name) {
  if (name.empty() || name.size() > name_max || !is_visible_ascii(name) ||
      name.find('`') != std::string_view::npos) {
    throw InvalidInput(
        fmt::format("a database's name is 1 to 64 visible characters, and this is '{}'", name));
  }
  return fmt::format("`{}`", name);
}

Address address_of(const Url& url, std::initializer_list<std::string_view> own) {
  std::vector<std::string_view> known{"schema", "timeout", "connect_timeout", "socket", "tls", "cacert",
                                      "cert",   "key"};
  known.insert(known.end(), own);
  url.require_known_parameters(known);
  Address address;
  address.shown = url.redacted();
  address.user = url.user;
  address.password = url.password;
  std::string_view database = url.path;
  if (database.starts_with('/')) database.remove_prefix(1);
  if (!database.empty()) (void)quoted_name(database);
  address.database = database;
  address.schema = url.parameter("schema").value_or(address.schema);
  (void)quoted_name(address.schema);
  address.socket = url.parameter("socket").value_or("");
  if (!url.authority.empty()) read_host(address, url);
  if (!address.host.empty() && !address.socket.empty())
    throw InvalidInput(fmt::format("{} names a host or ?socket=, not both", url.kind()));
  if (address.host.empty() && address.socket.empty()) address.host = "127.0.0.1";
  address.timeout = url.duration("timeout", address.timeout, timeout_min, timeout_max);
  address.connect_timeout =
      url.duration("connect_timeout", address.connect_timeout, timeout_min, timeout_max);
  auto& tls = address.tls;
  tls.cacert = url.parameter("cacert").value_or("");
  tls.cert = url.parameter("cert").value_or("");
  tls.key = url.parameter("key").value_or("");
  const bool is_meant = !tls.cacert.empty() || !tls.cert.empty() || !tls.key.empty();
  tls.is_on = url.flag("tls", is_meant);
  if (!tls.is_on && is_meant) throw InvalidInput(fmt::format("{} has TLS parameters, and tls=0", url.kind()));
  return address;
}

}  // namespace fenceguard::mariadb
