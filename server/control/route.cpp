#include "server/control/route.hpp"

#include <algorithm>
#include <array>

#include "guard/support/percent.hpp"
#include "server/data/problem.hpp"
#include "server/data/resource_path.hpp"

namespace fenceguard {
namespace {

using Found = std::variant<Route, http::Response>;

constexpr std::int64_t listing_limit_max = 1000;
constexpr std::string_view placeholder = "{resource}";

// Methods of one path stand in the order in which Allow lists them.
constexpr std::array table{
    RouteEntry{Call::acquire, Role::lease, "POST", "/v1/leases"},
    RouteEntry{Call::list_leases, Role::lease, "GET", "/v1/leases"},
    RouteEntry{Call::show_lease, Role::lease, "GET", "/v1/leases/{resource}"},
    RouteEntry{Call::renew, Role::lease, "PUT", "/v1/leases/{resource}"},
    RouteEntry{Call::release, Role::lease, "DELETE", "/v1/leases/{resource}"},
    RouteEntry{Call::raise, Role::admin, "POST", "/v1/leases/{resource}/raise"},
    RouteEntry{Call::list_fences, Role::lease, "GET", "/v1/fences"},
    RouteEntry{Call::show_fence, Role::lease, "GET", "/v1/fences/{resource}"},
    RouteEntry{Call::advance, Role::lease, "POST", "/v1/fences/{resource}/advance"},
    RouteEntry{Call::revoke, Role::admin, "POST", "/v1/fences/{resource}/revoke"},
    RouteEntry{Call::compact, Role::admin, "POST", "/v1/fences/compact"},
    RouteEntry{Call::status, Role::lease, "GET", "/v1/status"},
    RouteEntry{Call::list_lanes, Role::lease, "GET", "/v1/lanes"},
    RouteEntry{Call::follow_events, Role::lease, "GET", "/v1/events"},
    RouteEntry{Call::describe, Role::open, "GET", "/v1/openapi.json"},
    RouteEntry{Call::console, Role::open, "GET", "/ui"},
    RouteEntry{Call::metrics, Role::open, "GET", "/metrics"},
    RouteEntry{Call::healthz, Role::open, "GET", "/healthz"},
    RouteEntry{Call::readyz, Role::open, "GET", "/readyz"},
};

http::Response not_found() {
  return to_response(Problem::not_found, {"This path is not on the control side."});
}

http::Response no_query() {
  return malformed("There is no query here.");
}

Found on_resource(Call call, Role role, std::string_view name) {
  const auto why = Resource::objection(name);
  if (!why.empty()) return malformed(std::string{why} + ".");
  return Route{call, role, Resource{std::string{name}}};
}

// What of path stands for {resource} in pattern, empty where pattern has none; nothing if they do not match.
std::optional<std::string_view> match(std::string_view pattern, std::string_view path) {
  const auto at = pattern.find(placeholder);
  if (at == std::string_view::npos) return pattern == path ? std::optional{std::string_view{}} : std::nullopt;
  const auto prefix = pattern.substr(0, at);
  const auto suffix = pattern.substr(at + placeholder.size());
  if (path.size() < prefix.size() + suffix.size()) return std::nullopt;
  if (!path.starts_with(prefix) || !path.ends_with(suffix)) return std::nullopt;
  return path.substr(prefix.size(), path.size() - prefix.size() - suffix.size());
}

// In a query '+' is a space, as forms and most libraries write it.
std::optional<std::string> decode_query(std::string_view text) {
  std::string spaced{text};
  std::ranges::replace(spaced, '+', ' ');
  return percent_decode(spaced);
}

// Takes one 'name=value' into listing. An objection, or empty.
std::string_view read_parameter(std::string_view parameter, FenceListing& listing, std::string& seen) {
  const auto equals = parameter.find('=');
  if (equals == std::string_view::npos) return "A parameter is NAME=VALUE.";
  const auto name = parameter.substr(0, equals);
  auto value = decode_query(parameter.substr(equals + 1));
  if (!value) return "A '%' is not followed by two hexadecimal digits.";
  if (seen.find("," + std::string{name} + ",") != std::string::npos)
    return "A parameter comes more than once.";
  seen += std::string{name} + ",";
  if (name == "prefix") {
    // What has no room for more is a resource's whole name.
    const auto longer = value->size() < Resource::bytes_max ? *value + "x" : *value;
    if (!value->empty() && !Resource::objection(longer).empty())
      return "No resource starts with this prefix.";
    listing.prefix = std::move(*value);
  } else if (name == "after") {
    if (!value->empty() && !Resource::objection(*value).empty())
      return "The parameter 'after' is a resource.";
    listing.after = std::move(*value);
  } else if (name == "limit") {
    const auto limit = parse_decimal(*value);
    if (!limit || *limit < 1 || *limit > listing_limit_max) return "The parameter 'limit' is 1 to 1000.";
    listing.limit = static_cast<std::size_t>(*limit);
  } else {
    return "The parameters are prefix, after and limit.";
  }
  return {};
}

bool is_list(Call call) {
  return call == Call::list_fences || call == Call::list_leases || call == Call::list_lanes;
}

Found list_route(const RouteEntry& entry, std::string_view query) {
  Route route{entry.call, entry.role};
  std::string seen = ",";
  while (!query.empty()) {
    const auto end = std::min(query.find('&'), query.size());
    const auto objection = read_parameter(query.substr(0, end), route.listing, seen);
    if (!objection.empty()) return malformed(std::string{objection});
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return route;
}

// The 405 of a path that other methods have, or the 404 of one that none has.
http::Response without_method(std::string_view path) {
  std::string allow;
  for (const auto& entry : table) {
    if (!match(entry.path, path)) continue;
    if (!allow.empty()) allow += ", ";
    allow += entry.method == "GET" ? "GET, HEAD" : entry.method;
  }
  return allow.empty() ? not_found() : method_not_allowed(allow);
}

}  // namespace

std::span<const RouteEntry> routes() noexcept {
  return table;
}

Found find_route(std::string_view method, std::string_view target) {
  if (method == "HEAD") method = "GET";
  const auto question = target.find('?');
  auto decoded = decode_path(target.substr(0, question));
  if (auto* bad = std::get_if<BadPath>(&decoded)) return malformed(std::move(bad->reason));
  const std::string_view path = std::get<std::string>(decoded);
  const bool has_query = question != std::string_view::npos;
  for (const auto& entry : table) {
    const auto resource = match(entry.path, path);
    if (!resource || entry.method != method) continue;
    if (is_list(entry.call)) return list_route(entry, has_query ? target.substr(question + 1) : "");
    if (has_query) return no_query();
    if (entry.path.find(placeholder) != std::string_view::npos)
      return on_resource(entry.call, entry.role, *resource);
    return Route{entry.call, entry.role};
  }
  const auto is_listed = [path](const RouteEntry& entry) {
    return is_list(entry.call) && entry.path == path;
  };
  if (has_query && std::ranges::none_of(table, is_listed)) return no_query();
  return without_method(path);
}

}  // namespace fenceguard
