#include "adapters/redis/address.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "guard/error.hpp"
#include "guard/support/text.hpp"
#include "guard/token.hpp"

namespace fenceguard::redis {
namespace {

constexpr std::chrono::milliseconds timeout_min{10};
constexpr std::chrono::milliseconds timeout_max{120'000};
constexpr std::size_t prefix_bytes_max = 64;
constexpr std::int64_t database_max = 1'000'000;

int number(std::string_view what, std::string_view text, std::int64_t max) {
  const auto value = parse_decimal(text);
  if (!value || *value > max) {
    throw InvalidInput(fmt::format("{} of a redis: URL is 0 to {}, and this is '{}'", what, max, text));
  }
  return static_cast<int>(*value);
}

void require_prefix(const std::string& prefix) {
  if (prefix.empty() || prefix.size() > prefix_bytes_max || !is_visible_ascii(prefix) ||
      prefix.find_first_of("{}*?[]\\") != prefix.npos) {
    throw InvalidInput(
        "?prefix of a redis: URL is 1 to 64 visible characters, without braces, '*', '?', '[', ']' and '\\'");
  }
  // Keys of two namespaces must never be the same one.
  for (const std::string_view kind : {"lock:", "counter:", "queue:", "waiters:", "released:", "rebased:"}) {
    if (prefix.ends_with(kind)) {
      throw InvalidInput(fmt::format(
          "?prefix of a redis: URL does not end in '{}': keys of ours in another namespace do", kind));
    }
  }
}

// What follows the authority: '/3' is a database; without an authority a path is a Unix socket's.
void place(Address& address, const Url& url) {
  std::string_view path = url.path;
  const auto rest = path.substr(path.starts_with('/') ? 1 : 0);
  const bool is_number = std::ranges::all_of(rest, [](char c) { return c >= '0' && c <= '9'; });
  if (!url.authority.empty() || is_number) {
    for (const auto host : url.hosts())
      address.endpoints.push_back(parse_endpoint(url.authority.empty() ? "127.0.0.1" : host));
    if (!rest.empty()) address.database = number("the database", rest, database_max);
    return;
  }
  address.endpoints = {Endpoint{.host = {}, .port = 0, .socket = url.path}};
}

}  // namespace

std::string to_string(const Endpoint& endpoint) {
  if (endpoint.host.empty()) return endpoint.socket;
  const bool is_v6 = endpoint.host.find(':') != std::string::npos;
  return fmt::format("{}:{}", is_v6 ? "[" + endpoint.host + "]" : endpoint.host, endpoint.port);
}

Endpoint parse_endpoint(std::string_view text) {
  const auto require = [text](bool is_well) {
    if (!is_well)
      throw InvalidInput(fmt::format("a redis: URL's host reads HOST:PORT, and this is '{}'", text));
  };
  Endpoint endpoint;
  std::string_view host = text;
  std::string_view port;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    require(end != text.npos);
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
  } else if (const auto colon = text.rfind(':'); colon != text.npos) {
    host = text.substr(0, colon);
    port = text.substr(colon);
  }
  if (host.empty()) throw InvalidInput("a redis: URL has an empty host");
  require(host.find_first_of("[]") == host.npos);
  if (!port.empty()) {
    require(port.size() >= 2 && port.front() == ':');
    endpoint.port = number("the port", port.substr(1), 65'535);
  }
  endpoint.host = host;
  return endpoint;
}

Address Address::at(const Endpoint& endpoint) const {
  Address copy = *this;
  copy.endpoints = {endpoint};
  return copy;
}

Address address_of(const Url& url, std::initializer_list<std::string_view> own) {
  if (url.scheme == "rediss") {
    throw InvalidInput(
        "rediss: is Redis over TLS, which the client library (hiredis 0.14) cannot speak; use redis: through "
        "a "
        "tunnel, such as stunnel or ssh -L");
  }
  std::vector<std::string_view> known{"prefix", "timeout", "connect_timeout", "db"};
  known.insert(known.end(), own.begin(), own.end());
  url.require_known_parameters(known);
  Address address;
  address.user = url.user;
  address.password = url.password;
  address.shown = url.redacted();
  place(address, url);
  address.prefix = url.parameter("prefix").value_or(address.prefix);
  address.timeout = url.duration("timeout", address.timeout, timeout_min, timeout_max);
  address.connect_timeout =
      url.duration("connect_timeout", address.connect_timeout, timeout_min, timeout_max);
  address.database = static_cast<int>(url.number("db", address.database, database_max));
  require_prefix(address.prefix);
  return address;
}

}  // namespace fenceguard::redis
