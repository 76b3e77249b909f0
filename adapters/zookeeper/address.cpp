#include "adapters/zookeeper/address.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "guard/clock.hpp"
#include "guard/error.hpp"
#include "guard/token.hpp"

namespace fenceguard::zookeeper {
namespace {

constexpr int default_port = 2181;
constexpr std::chrono::milliseconds timeout_min{10};
constexpr std::chrono::milliseconds timeout_max{24LL * 3600 * 1000};

std::chrono::milliseconds duration(const std::string& name, const std::string& text) {
  const auto value = parse_duration(text);
  if (value < timeout_min || value > timeout_max) {
    throw InvalidInput(
        fmt::format("?{} of a zookeeper: URL is 10ms to 24 hours, and this is '{}'", name, text));
  }
  return value;
}

// 'host:port', with the port that is meant where none is given.
std::string host_of(std::string_view text) {
  std::string_view host = text;
  std::string_view port;
  const auto bracket = text.starts_with('[') ? text.find(']') : 0;
  if (bracket == text.npos) {
    throw InvalidInput(fmt::format("a zookeeper: URL's host reads HOST:PORT, and this is '{}'", text));
  }
  if (const auto colon = text.find(':', bracket); colon != text.npos) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    const auto number = parse_decimal(port);
    if (!number || *number < 1 || *number > 65'535) {
      throw InvalidInput(fmt::format("a zookeeper: URL's host reads HOST:PORT, and this is '{}'", text));
    }
  }
  if (host.empty()) throw InvalidInput("a zookeeper: URL has an empty host");
  return port.empty() ? fmt::format("{}:{}", host, default_port) : std::string{text};
}

std::string hosts_of(std::string_view authority) {
  std::string hosts;
  for (;;) {
    const auto comma = authority.find(',');
    if (!hosts.empty()) hosts += ',';
    hosts += host_of(authority.substr(0, comma));
    if (comma == authority.npos) return hosts;
    authority.remove_prefix(comma + 1);
  }
}

// What ZooKeeper takes for a path and the C client, which knows no more than bytes, passes on.
void require_path(std::string_view path) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; };
  const bool is_plain = path.find("//") == path.npos && std::ranges::none_of(path, is_control);
  const auto whole = fmt::format("{}/", path);
  const bool has_dots = whole.find("/./") != whole.npos || whole.find("/../") != whole.npos;
  if (!is_plain || has_dots || path == "/zookeeper" || path.starts_with("/zookeeper/")) {
    throw InvalidInput(fmt::format(
        "the path of a zookeeper: URL is a node's, with no empty or dot segment, and not below /zookeeper, "
        "and this is '{}'",
        path));
  }
}

std::string root_of(std::string path) {
  while (path.ends_with('/')) path.pop_back();
  if (path.empty()) return Address{}.root;
  require_path(path);
  return path;
}

Acl acl_of(const std::string& text, bool has_user) {
  if (text == "open") return Acl::open;
  if (text != "creator" && text != "read") {
    throw InvalidInput(
        fmt::format("?acl of a zookeeper: URL is creator, read or open, and this is '{}'", text));
  }
  if (!has_user) {
    throw InvalidInput(
        fmt::format("?acl={} needs a user to whom nodes belong: zookeeper://USER:PASSWORD@…", text));
  }
  return text == "creator" ? Acl::creator : Acl::read;
}

}  // namespace

Address address_of(const Url& url, std::initializer_list<std::string_view> own) {
  std::vector<std::string_view> known{"session_timeout", "timeout", "acl"};
  known.insert(known.end(), own.begin(), own.end());
  url.require_known_parameters(known);
  Address address;
  address.hosts = hosts_of(url.authority);
  address.root = root_of(url.path);
  address.user = url.user;
  address.password = url.password;
  address.shown = url.redacted();
  const bool has_user = !url.user.empty();
  if (!has_user && !url.password.empty()) throw InvalidInput("a zookeeper: URL has a password and no user");
  if (url.user.find(':') != url.user.npos) throw InvalidInput("a user of ZooKeeper holds no ':'");
  address.acl = has_user ? Acl::creator : Acl::open;
  for (const auto& [name, value] : url.parameters) {
    if (name == "session_timeout") address.session_timeout = duration(name, value);
    if (name == "timeout") address.timeout = duration(name, value);
    if (name == "acl") address.acl = acl_of(value, has_user);
  }
  return address;
}

}  // namespace fenceguard::zookeeper
