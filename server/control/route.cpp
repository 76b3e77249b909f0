#include "server/control/route.hpp"

#include <algorithm>

#include "guard/support/percent.hpp"
#include "server/data/problem.hpp"
#include "server/data/resource_path.hpp"

namespace fenceguard {
namespace {

using Found = std::variant<Route, http::Response>;

constexpr std::int64_t listing_limit_max = 1000;
constexpr std::string_view leases_prefix = "/v1/leases/";
constexpr std::string_view fences_prefix = "/v1/fences/";

http::Response not_found() {
  return to_response(Problem::not_found, {"This path is not on the control side."});
}

Found on_resource(Call call, Role role, std::string_view name) {
  const auto why = Resource::objection(name);
  if (!why.empty()) return malformed(std::string{why} + ".");
  return Route{call, role, Resource{std::string{name}}};
}

// What stands before suffix; nothing if path does not end with it.
std::optional<std::string_view> before(std::string_view path, std::string_view suffix) {
  if (!path.ends_with(suffix)) return std::nullopt;
  return path.substr(0, path.size() - suffix.size());
}

Found lease_route(std::string_view method, std::string_view name) {
  if (method == "GET") return on_resource(Call::show_lease, Role::lease, name);
  if (method == "PUT") return on_resource(Call::renew, Role::lease, name);
  if (method == "DELETE") return on_resource(Call::release, Role::lease, name);
  const auto raised = before(name, "/raise");
  if (method == "POST" && raised) return on_resource(Call::raise, Role::admin, *raised);
  return method_not_allowed(raised ? "GET, HEAD, PUT, DELETE, POST" : "GET, HEAD, PUT, DELETE");
}

Found fence_route(std::string_view method, std::string_view name) {
  if (method == "GET") return on_resource(Call::show_fence, Role::lease, name);
  const auto advanced = before(name, "/advance");
  const auto revoked = before(name, "/revoke");
  if (method == "POST" && name == "compact") return Route{Call::compact, Role::admin};
  if (method == "POST" && advanced) return on_resource(Call::advance, Role::lease, *advanced);
  if (method == "POST" && revoked) return on_resource(Call::revoke, Role::admin, *revoked);
  return method_not_allowed(advanced || revoked || name == "compact" ? "GET, HEAD, POST" : "GET, HEAD");
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
    if (!value->empty() && !Resource::objection(*value + "x").empty())
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

Found list_route(std::string_view query) {
  Route route{Call::list_fences, Role::lease};
  std::string seen = ",";
  while (!query.empty()) {
    const auto end = std::min(query.find('&'), query.size());
    const auto objection = read_parameter(query.substr(0, end), route.listing, seen);
    if (!objection.empty()) return malformed(std::string{objection});
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return route;
}

Found plain_route(std::string_view method, std::string_view path) {
  if (path == "/v1/leases") {
    if (method != "POST") return method_not_allowed("POST");
    return Route{Call::acquire, Role::lease};
  }
  const auto call = path == "/metrics"   ? std::optional{Call::metrics}
                    : path == "/healthz" ? std::optional{Call::healthz}
                    : path == "/readyz"  ? std::optional{Call::readyz}
                                         : std::nullopt;
  if (!call) return not_found();
  if (method != "GET") return method_not_allowed("GET, HEAD");
  return Route{*call, Role::open};
}

}  // namespace

Found find_route(std::string_view method, std::string_view target) {
  if (method == "HEAD") method = "GET";
  const auto question = target.find('?');
  auto decoded = decode_path(target.substr(0, question));
  if (auto* bad = std::get_if<BadPath>(&decoded)) return malformed(std::move(bad->reason));
  const std::string_view path = std::get<std::string>(decoded);
  if (path == "/v1/fences") {
    if (method != "GET") return method_not_allowed("GET, HEAD");
    return list_route(question == std::string_view::npos ? std::string_view{} : target.substr(question + 1));
  }
  if (question != std::string_view::npos) return malformed("There is no query here.");
  if (path.starts_with(leases_prefix)) return lease_route(method, path.substr(leases_prefix.size()));
  if (path.starts_with(fences_prefix)) return fence_route(method, path.substr(fences_prefix.size()));
  return plain_route(method, path);
}

}  // namespace fenceguard
