#include "server/control/control_service.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "guard/error.hpp"
#include "guard/support/text.hpp"
#include "server/data/problem.hpp"

namespace fenceguard {
namespace {

// A form cannot be sent as JSON from a web page without asking first, and we do not answer such questions.
bool is_json(std::string_view content_type) {
  content_type = content_type.substr(0, content_type.find(';'));
  while (content_type.ends_with(' ') || content_type.ends_with('\t')) content_type.remove_suffix(1);
  return equals_ignoring_case(content_type, "application/json");
}

bool is_lease_call(Call call) {
  return call == Call::acquire || call == Call::list_leases || call == Call::renew || call == Call::release ||
         call == Call::show_lease || call == Call::raise;
}

http::Response description() {
  http::Response response;
  response.fields.add("Content-Type", "application/json");
  response.body = openapi_json;
  return response;
}

http::Response wrong_media_type() {
  return to_response(Problem::media_type, {"A body here is application/json, and says so in Content-Type."});
}

}  // namespace

std::optional<http::Response> ControlContext::refuse_unsigned(std::string_view operation, const Claim& claim,
                                                              const http::Fields& fields,
                                                              const Requester& requester) const {
  auto refused = check_signature(signatures.required, claim, fields);
  if (refused) {
    metrics.count_unsigned();
    log.not_signed(operation, claim, requester);
  }
  return refused;
}

void ControlContext::require_protected(const Resource& resource) const {
  if (auto text = fences.objection_to(resource); !text.empty()) {
    text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
    throw InvalidInput(text + ".");
  }
  if (resource_depth == 0) return;
  const auto segments = static_cast<std::size_t>(std::ranges::count(resource.name(), '/')) + 1;
  if (segments == resource_depth) return;
  throw InvalidInput(
      fmt::format("A resource is the first {} segments of a path here, and this name has {}: a lock on it "
                  "would protect nothing.",
                  resource_depth, segments));
}

std::variant<Route, http::Response> ControlService::admit(const http::Request& head) const {
  if (auto refused = hosts_.refuse_host(head)) return std::move(*refused);
  if (!hosts_.is_our_origin(head)) {
    return to_response(Problem::foreign_origin,
                       {"A web page of another origin cannot call the control side."});
  }
  auto found = find_route(head.method, head.target);
  const auto* route = std::get_if<Route>(&found);
  if (route == nullptr) return found;
  if (auto refused = refuse_role(route->role, head)) return std::move(*refused);
  if (head.fields.contains("Content-Type")) {
    const auto type = head.fields.single("Content-Type");
    if (!type || !is_json(*type)) return wrong_media_type();
  }
  return found;
}

std::optional<http::Response> ControlService::refuse_role(Role needed, const http::Request& head) const {
  if (needed == Role::open) return std::nullopt;
  const auto role = tokens_.role_of(head.fields.single("Authorization"));
  if (!role) {
    auto response =
        to_response(Problem::unauthorized, {"Send a token of the control token file as a bearer token."});
    response.fields.add("WWW-Authenticate", "Bearer realm=\"fenceguard\"");
    return response;
  }
  if (*role < needed) return to_response(Problem::forbidden, {"This call takes the role 'admin'."});
  return std::nullopt;
}

std::optional<http::Response> ControlService::preview(http::Request& request) {
  auto admitted = admit(request);
  if (auto* response = std::get_if<http::Response>(&admitted)) return std::move(*response);
  request.head = std::move(std::get<Route>(admitted));
  return std::nullopt;
}

void ControlService::handle(http::Request request, std::shared_ptr<http::Caller> caller, http::Reply reply) {
  if (!request.body.empty() && !request.fields.contains("Content-Type")) return reply(wrong_media_type());
  auto route = std::any_cast<Route>(std::move(request.head));
  // Tokens may have been withdrawn while the body was on its way.
  if (auto refused = refuse_role(route.role, request)) return reply(std::move(*refused));
  if (is_lease_call(route.call) && context_.source == nullptr) {
    return reply(
        to_response(Problem::no_source, {"This guard runs without a token source, so it grants no leases."}));
  }
  try {
    call(std::move(route), request, caller, reply);
  } catch (const InvalidInput& error) {
    reply(malformed(error.what()));
  }
}

void ControlService::call(Route route, const http::Request& request,
                          const std::shared_ptr<http::Caller>& caller, http::Reply reply) {
  const auto& resource = route.resource;
  switch (route.call) {
    case Call::acquire:
      return leases_.acquire(request, caller, std::move(reply));
    case Call::list_leases:
      return leases_.list(route.listing, reply);
    case Call::renew:
      return leases_.renew(*resource, request, std::move(reply));
    case Call::release:
      return leases_.release(*resource, request, std::move(reply));
    case Call::show_lease:
      return leases_.show(*resource, std::move(reply));
    case Call::raise:
      context_.require_protected(*resource);
      return leases_.raise(*resource, request, std::move(reply));
    case Call::show_fence:
      return fences_.show(*resource, std::move(reply));
    case Call::list_fences:
      return fences_.list(std::move(route.listing), std::move(reply));
    case Call::advance:
      context_.require_protected(*resource);
      return fences_.advance(*resource, request, std::move(reply));
    case Call::revoke:
      return fences_.revoke(*resource, request.client, reply);
    case Call::compact:
      return fences_.compact(std::move(reply));
    case Call::status:
      return reply(
          watch_.status(tokens_.role_of(request.fields.single("Authorization")).value_or(Role::lease)));
    case Call::list_lanes:
      return reply(watch_.lanes(route.listing));
    case Call::follow_events:
      // A token may be withdrawn while its client follows.
      return reply(watch_.events(
          request, [this, head = request, role = route.role] { return !refuse_role(role, head); }));
    case Call::console:
      return reply(WatchHandlers::console(!tokens_.role_of(std::nullopt)));
    case Call::describe:
      return reply(description());
    case Call::metrics:
    case Call::healthz:
    case Call::readyz:
      return reply(probe_.answer(route.call));
  }
}

http::Response ControlService::refuse(unsigned status, std::string_view why) {
  return refuse_request(status, why);
}

}  // namespace fenceguard
