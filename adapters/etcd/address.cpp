#include "adapters/etcd/address.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "guard/error.hpp"
#include "guard/support/text.hpp"
#include "guard/token.hpp"

namespace fenceguard::etcd {
namespace {

constexpr std::chrono::milliseconds timeout_min{10};
constexpr std::chrono::milliseconds timeout_max{120'000};
constexpr std::size_t prefix_bytes_max = 128;
constexpr std::string_view default_port = ":2379";

// HOST, HOST:PORT, [HOST] or [HOST]:PORT, as it stands in a URL.
std::string with_port(std::string_view host) {
  const bool is_v6 = host.starts_with('[');
  const auto end = is_v6 ? host.find(']') : std::min(host.find(':'), host.size()) - 1;
  const auto port = end == host.npos ? std::string_view{} : host.substr(std::min(end + 1, host.size()));
  const bool is_host = !host.empty() && host.front() != ':' && end != host.npos;
  const auto number = parse_decimal(port.empty() ? "1" : port.substr(1));
  if (!is_host || (!port.empty() && port.front() != ':') || !number || *number < 1 || *number > 65'535 ||
      host.find_first_of(" \t\"\\@") != host.npos) {
    throw InvalidInput(fmt::format("an etcd: URL's host reads HOST or HOST:PORT, and this is '{}'", host));
  }
  return std::string{host} + std::string{port.empty() ? default_port : std::string_view{}};
}

std::vector<std::string> endpoints_of(const Url& url, bool is_tls) {
  const std::string scheme = is_tls ? "https://" : "http://";
  std::vector<std::string> result;
  for (const auto host : url.hosts())
    result.push_back(scheme + with_port(url.authority.empty() ? "127.0.0.1" : host));
  return result;
}

// The slash that begins the path belongs to the URL; one more begins the prefix, as with '/registry'.
std::string prefix_of(std::string_view path) {
  if (path.starts_with('/')) path.remove_prefix(1);
  while (path.ends_with('/')) path.remove_suffix(1);
  return std::string{path.empty() ? "fenceguard" : path};
}

void require_prefix(std::string_view prefix) {
  if (prefix.size() > prefix_bytes_max || !is_visible_ascii(prefix) || prefix.find("//") != prefix.npos) {
    throw InvalidInput(
        "the path of an etcd: URL is a prefix of 1 to 128 visible characters without empty segments");
  }
  // Keys of two namespaces must never be the same one.
  const auto bounded = fmt::format("/{}/", prefix);
  for (const std::string_view segment : {"/lock/", "/fence/"}) {
    if (bounded.find(segment) != bounded.npos) {
      throw InvalidInput(
          "the path of an etcd: URL has no segment 'lock' or 'fence': keys of ours in another namespace do");
    }
  }
}

void read_tls(Tls& tls, const Url& url) {
  tls.cacert = url.parameter("cacert").value_or("");
  tls.cert = url.parameter("cert").value_or("");
  tls.key = url.parameter("key").value_or("");
  tls.server_name = url.parameter("server_name").value_or("");
  const bool is_meant =
      !tls.cacert.empty() || !tls.cert.empty() || !tls.key.empty() || !tls.server_name.empty();
  tls.is_on = url.flag("tls", is_meant);
  if (!tls.is_on && is_meant)
    throw InvalidInput("an etcd: URL with ?tls=0 has no use for cacert, cert, key or server_name");
  if (tls.cert.empty() != tls.key.empty())
    throw InvalidInput("an etcd: URL has both ?cert and ?key, or neither");
}

}  // namespace

Address address_of(const Url& url, std::initializer_list<std::string_view> own) {
  std::vector<std::string_view> known{"timeout", "connect_timeout", "tls", "cacert", "cert",
                                      "key",     "server_name"};
  known.insert(known.end(), own.begin(), own.end());
  url.require_known_parameters(known);
  if (url.user.empty() && !url.password.empty())
    throw InvalidInput("an etcd: URL with a password has a user before it: etcd://USER:PASSWORD@HOST");
  Address address;
  address.user = url.user;
  address.password = url.password;
  address.shown = url.redacted();
  address.prefix = prefix_of(url.path);
  require_prefix(address.prefix);
  read_tls(address.tls, url);
  address.endpoints = endpoints_of(url, address.tls.is_on);
  address.timeout = url.duration("timeout", address.timeout, timeout_min, timeout_max);
  address.connect_timeout =
      url.duration("connect_timeout", address.connect_timeout, timeout_min, timeout_max);
  return address;
}

}  // namespace fenceguard::etcd
