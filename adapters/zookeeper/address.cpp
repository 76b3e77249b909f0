#include "adapters/zookeeper/address.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "guard/error.hpp"
#include "guard/token.hpp"

namespace fenceguard::zookeeper {
namespace {

constexpr int default_port = 2181;
constexpr std::chrono::milliseconds timeout_min{10};
constexpr std::chrono::milliseconds timeout_max{24LL * 3600 * 1000};

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

std::string hosts_of(const Url& url) {
  std::string hosts;
  for (const auto host : url.hosts()) hosts += (hosts.empty() ? "" : ",") + host_of(host);
  return hosts;
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
  address.hosts = hosts_of(url);
  address.root = root_of(url.path);
  address.user = url.user;
  address.password = url.password;
  address.shown = url.redacted();
  const bool has_user = !url.user.empty();
  if (!has_user && !url.password.empty()) throw InvalidInput("a zookeeper: URL has a password and no user");
  if (url.user.find(':') != url.user.npos) throw InvalidInput("a user of ZooKeeper holds no ':'");
  address.acl = has_user ? Acl::creator : Acl::open;
  if (url.parameters.contains("session_timeout"))
    address.session_timeout = url.duration("session_timeout", {}, timeout_min, timeout_max);
  address.timeout = url.duration("timeout", address.timeout, timeout_min, timeout_max);
  if (const auto acl = url.parameter("acl")) address.acl = acl_of(*acl, has_user);
  return address;
}

}  // namespace fenceguard::zookeeper
