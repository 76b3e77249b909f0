#include "adapters/postgres/connect.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "guard/error.hpp"
#include "guard/support/percent.hpp"

namespace fenceguard::postgres {
namespace {

// What libpq takes in a URI's query, without what could run or read something else on this machine.
constexpr std::array libpq_parameters{"application_name",
                                      "channel_binding",
                                      "client_encoding",
                                      "connect_timeout",
                                      "gssencmode",
                                      "host",
                                      "keepalives",
                                      "keepalives_count",
                                      "keepalives_idle",
                                      "keepalives_interval",
                                      "krbsrvname",
                                      "options",
                                      "passfile",
                                      "port",
                                      "service",
                                      "sslcert",
                                      "sslcompression",
                                      "sslcrl",
                                      "sslkey",
                                      "sslmode",
                                      "sslrootcert",
                                      "sslsni",
                                      "target_session_attrs",
                                      "tcp_user_timeout"};

std::string quoted(std::string_view value) {
  std::string result = "'";
  for (const char c : value) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

// 'h1:5432,h2' as libpq's two lists; '[::1]:5432' is one host.
struct Hosts {
  std::vector<std::string> hosts;
  std::vector<std::string> ports;
};

Hosts hosts_of(std::string_view authority) {
  Hosts result;
  while (!authority.empty()) {
    const auto one = authority.substr(0, authority.find(','));
    authority.remove_prefix(std::min(authority.size(), one.size() + 1));
    const auto bracket = one.rfind(']');
    const auto colon = one.find(':', bracket == std::string_view::npos ? 0 : bracket);
    auto host = one.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    // A folder for a Unix socket is percent-encoded, as in libpq's own URIs.
    const auto decoded = percent_decode(host);
    if (!decoded || decoded->empty()) {
      throw InvalidInput("a postgres: URL reads postgres://USER@HOST:PORT/DATABASE");
    }
    result.hosts.push_back(*decoded);
    result.ports.emplace_back(colon == std::string_view::npos ? "" : one.substr(colon + 1));
  }
  return result;
}

}  // namespace

Address address_of(const Url& url, std::initializer_list<std::string_view> own) {
  Address address{{}, url.redacted()};
  const auto add = [&address](std::string_view name, std::string_view value) {
    if (!address.conninfo.empty()) address.conninfo += ' ';
    address.conninfo += fmt::format("{}={}", name, quoted(value));
  };
  for (const auto& [name, value] : url.parameters) {
    if (std::ranges::find(own, name) != own.end()) continue;
    if (std::ranges::find(libpq_parameters, std::string_view{name}) == libpq_parameters.end()) {
      throw InvalidInput(fmt::format("a postgres: URL has no parameter '{}'; known are {}{}{}", name,
                                     fmt::join(own, ", "), own.size() == 0 ? "" : ", ",
                                     fmt::join(libpq_parameters, ", ")));
    }
    add(name, value);
  }
  const auto hosts = hosts_of(url.authority);
  if (!hosts.hosts.empty()) {
    add("host", fmt::format("{}", fmt::join(hosts.hosts, ",")));
    add("port", fmt::format("{}", fmt::join(hosts.ports, ",")));
  }
  if (!url.user.empty()) add("user", url.user);
  if (!url.password.empty()) add("password", url.password);
  const std::string_view database = std::string_view{url.path}.substr(url.path.starts_with('/') ? 1 : 0);
  if (!database.empty()) add("dbname", database);
  if (!url.parameters.contains("connect_timeout")) add("connect_timeout", "10");
  if (!url.parameters.contains("client_encoding")) add("client_encoding", "UTF8");
  if (!url.parameters.contains("application_name")) add("fallback_application_name", "fenceguard");
  return address;
}

std::unique_ptr<pqxx::connection> connect(const Address& address) {
  try {
    auto connection = std::make_unique<pqxx::connection>(address.conninfo);
    if (!connection->is_open()) throw Unavailable(fmt::format("{} cannot be reached", address.shown));
#if PQXX_VERSION_MAJOR < 7
      // A session that is lost must be noticed, not replaced by another one.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    connection->inhibit_reactivation(true);
#pragma GCC diagnostic pop
#endif
    return connection;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    std::string reason = error.what();
    while (!reason.empty() && reason.back() == '\n') reason.pop_back();
    std::ranges::replace(reason, '\n', ' ');
    throw Unavailable(fmt::format("{} cannot be reached: {}", address.shown, reason));
  }
}

bool is_pooled(pqxx::connection& connection) {
  pqxx::nontransaction tx{connection};
  // A pooler gives its clients numbers of its own.
  return tx.exec("SELECT pg_catalog.pg_backend_pid()")[0][0].as<int>() != connection.backendpid();
}

}  // namespace fenceguard::postgres
