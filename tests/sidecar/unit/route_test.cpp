// Which call of the control side a request is, and which role it takes.

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <set>

#include "server/control/route.hpp"

namespace fenceguard {
namespace {

std::optional<Route> read(std::string_view method, std::string_view target) {
  auto found = find_route(method, target);
  if (auto* route = std::get_if<Route>(&found)) return *route;
  return std::nullopt;
}

unsigned status(std::string_view method, std::string_view target) {
  const auto found = find_route(method, target);
  const auto* response = std::get_if<http::Response>(&found);
  return response == nullptr ? 0 : response->status;
}

void expect_call(std::string_view method, std::string_view target, Call call, Role role,
                 const std::optional<std::string>& resource = {}) {
  const auto route = read(method, target);
  ASSERT_TRUE(route) << method << ' ' << target;
  EXPECT_EQ(route->call, call) << target;
  EXPECT_EQ(route->role, role) << target;
  EXPECT_EQ(route->resource.has_value(), resource.has_value()) << target;
  if (resource && route->resource) {
    EXPECT_EQ(route->resource->name(), *resource);
  }
}

TEST(Route, EveryCallHasItsOwn) {
  expect_call("POST", "/v1/leases", Call::acquire, Role::lease);
  expect_call("GET", "/v1/leases", Call::list_leases, Role::lease);
  expect_call("PUT", "/v1/leases/accounts/42", Call::renew, Role::lease, "accounts/42");
  expect_call("DELETE", "/v1/leases/accounts/42", Call::release, Role::lease, "accounts/42");
  expect_call("GET", "/v1/leases/accounts/42", Call::show_lease, Role::lease, "accounts/42");
  expect_call("POST", "/v1/leases/accounts/42/raise", Call::raise, Role::admin, "accounts/42");
  expect_call("GET", "/v1/fences/accounts/42", Call::show_fence, Role::lease, "accounts/42");
  expect_call("HEAD", "/v1/fences/accounts/42", Call::show_fence, Role::lease, "accounts/42");
  expect_call("GET", "/v1/fences", Call::list_fences, Role::lease);
  expect_call("POST", "/v1/fences/accounts/42/advance", Call::advance, Role::lease, "accounts/42");
  expect_call("POST", "/v1/fences/accounts/42/revoke", Call::revoke, Role::admin, "accounts/42");
  expect_call("POST", "/v1/fences/compact", Call::compact, Role::admin);
  expect_call("GET", "/v1/status", Call::status, Role::lease);
  expect_call("GET", "/v1/lanes", Call::list_lanes, Role::lease);
  expect_call("GET", "/v1/events", Call::follow_events, Role::lease);
  expect_call("GET", "/ui", Call::console, Role::open);
  expect_call("GET", "/v1/openapi.json", Call::describe, Role::open);
  expect_call("GET", "/metrics", Call::metrics, Role::open);
  expect_call("GET", "/healthz", Call::healthz, Role::open);
  expect_call("GET", "/readyz", Call::readyz, Role::open);
}

// Each entry of the table, as a request: it is the call that the table says.
TEST(Route, TheTableIsWhatIsFound) {
  for (const auto& entry : routes()) {
    std::string path{entry.path};
    const std::string placeholder = "{resource}";
    const auto at = path.find(placeholder);
    std::optional<std::string> resource;
    if (at != std::string::npos) resource = "accounts/42";
    if (resource) path.replace(at, placeholder.size(), *resource);
    expect_call(entry.method, path, entry.call, entry.role, resource);
  }
}

// Neither has one that the other has not.
TEST(Route, TheTableIsWhatIsDescribed) {
  std::set<std::string> described;
  const auto document = boost::json::parse(openapi_json);
  for (const auto& [path, calls] : document.at("paths").as_object()) {
    if (path == "/{resource}") continue;  // the data side
    for (const auto& [method, call] : calls.as_object()) {
      if (method == "parameters") continue;
      std::string name{method};
      for (char& letter : name) letter = static_cast<char>(std::toupper(letter));
      described.insert(name + " " + std::string{path});
    }
  }
  std::set<std::string> found;
  for (const auto& entry : routes()) found.insert(std::string{entry.method} + " " + std::string{entry.path});
  EXPECT_EQ(described, found);
}

TEST(Route, EveryResourceCanBeNamed) {
  expect_call("GET", "/v1/leases/a/raise", Call::show_lease, Role::lease, "a/raise");
  expect_call("POST", "/v1/leases/a/raise/raise", Call::raise, Role::admin, "a/raise");
  expect_call("GET", "/v1/fences/compact", Call::show_fence, Role::lease, "compact");
  expect_call("POST", "/v1/fences/compact/advance", Call::advance, Role::lease, "compact");
  expect_call("POST", "/v1/fences/a%20b/advance", Call::advance, Role::lease, "a b");
}

TEST(Route, BadResourcesAre400) {
  for (const char* target :
       {"/v1/leases/", "/v1/leases//a", "/v1/leases/a/", "/v1/leases/..", "/v1/leases/a%2fb",
        "/v1/leases/%2e%2e", "/v1/leases/a%00", "/v1/leases/%zz", "/v1/leases/a?x=1"}) {
    EXPECT_EQ(status("GET", target), 400U) << target;
  }
}

TEST(Route, UnknownPathsAre404) {
  for (const char* target : {"/", "/v1", "/v1/", "/v2/leases", "/v1/leasesx", "/metrics/", "/V1/leases"}) {
    EXPECT_EQ(status("GET", target), 404U) << target;
  }
}

TEST(Route, OtherMethodsAre405WithAllow) {
  const auto allow = [](std::string_view method, std::string_view target) {
    const auto found = find_route(method, target);
    const auto& response = std::get<http::Response>(found);
    EXPECT_EQ(response.status, 405U);
    return std::string{response.fields.single("Allow").value_or("")};
  };
  EXPECT_EQ(allow("PUT", "/v1/leases"), "POST, GET, HEAD");
  EXPECT_EQ(allow("OPTIONS", "/v1/leases"), "POST, GET, HEAD");
  EXPECT_EQ(allow("POST", "/v1/events"), "GET, HEAD");
  EXPECT_EQ(allow("POST", "/v1/fences?prefix=a"), "GET, HEAD");
  EXPECT_EQ(allow("POST", "/v1/leases/a"), "GET, HEAD, PUT, DELETE");
  EXPECT_EQ(allow("PATCH", "/v1/leases/a/raise"), "GET, HEAD, PUT, DELETE, POST");
  EXPECT_EQ(allow("POST", "/v1/fences"), "GET, HEAD");
  EXPECT_EQ(allow("DELETE", "/v1/fences/a"), "GET, HEAD");
  EXPECT_EQ(allow("DELETE", "/v1/fences/a/revoke"), "GET, HEAD, POST");
  EXPECT_EQ(allow("DELETE", "/v1/fences/compact"), "GET, HEAD, POST");
  EXPECT_EQ(allow("POST", "/v1/leases/raise"), "GET, HEAD, PUT, DELETE");
  EXPECT_EQ(allow("POST", "/v1/leases/"), "GET, HEAD, PUT, DELETE");
  EXPECT_EQ(allow("POST", "/metrics"), "GET, HEAD");
}

TEST(Route, AListHasItsParameters) {
  const auto route = read("GET", "/v1/fences?prefix=a%2Fb+c&after=a/b&limit=7");
  ASSERT_TRUE(route);
  EXPECT_EQ(route->listing.prefix, "a/b c");
  EXPECT_EQ(route->listing.after, "a/b");
  EXPECT_EQ(route->listing.limit, 7U);
  EXPECT_TRUE(read("GET", "/v1/fences?prefix=&after=&limit=1000"));
  EXPECT_TRUE(read("GET", "/v1/fences?"));
  EXPECT_EQ(read("GET", "/v1/leases?limit=7")->listing.limit, 7U);
  EXPECT_EQ(read("GET", "/v1/lanes?limit=7")->listing.limit, 7U);
  for (const char* other : {"/v1/status?limit=7", "/v1/events?limit=7", "/ui?a=b"})
    EXPECT_EQ(status("GET", other), 400U) << other;
  EXPECT_EQ(status("POST", "/v1/leases?limit=7"), 400U);
}

TEST(Route, BadParametersAre400) {
  for (const char* query :
       {"limit=0", "limit=1001", "limit=x", "limit=", "limit=01", "limit=1&limit=1", "x=1", "prefix",
        "prefix=%zz", "after=/", "prefix=%00", "limit=9999999999999999999"}) {
    EXPECT_EQ(status("GET", std::string{"/v1/fences?"} + query), 400U) << query;
  }
}

}  // namespace
}  // namespace fenceguard
