#pragma once

// Route: which call of the control side a request is. RESOURCE is the rest of the path, slashes included;
// what may stand behind it (/raise, /advance, /revoke) belongs to POST alone, so every resource can be named.
//
// Pure; safe to use from any thread.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "guard/store/storage.hpp"
#include "server/control/access_tokens.hpp"
#include "server/http/wire/message.hpp"

namespace fenceguard {

enum class Call {
  acquire,
  list_leases,
  renew,
  release,
  show_lease,
  raise,
  show_fence,
  list_fences,
  advance,
  revoke,
  compact,
  status,
  list_lanes,
  follow_events,
  describe,
  console,
  metrics,
  healthz,
  readyz,
};

// A call as it is written: 'PUT /v1/leases/{resource}'. GET stands for HEAD, too.
struct RouteEntry {
  Call call;
  Role role;
  std::string_view method;
  std::string_view path;
};

// Every call of the control side, once.
[[nodiscard]] std::span<const RouteEntry> routes() noexcept;

// What GET /v1/openapi.json answers: docs/openapi.yaml, in which each of routes() is described.
extern const std::string_view openapi_json;

struct Route {
  Call call;
  Role role;  // that it takes
  std::optional<Resource> resource{};
  FenceListing listing{};  // of list_fences, list_leases and list_lanes
};

// The route, or the 400, 404 or 405 to answer. HEAD is as GET.
[[nodiscard]] std::variant<Route, http::Response> find_route(std::string_view method,
                                                             std::string_view target);

}  // namespace fenceguard
