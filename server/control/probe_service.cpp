#include "server/control/probe_service.hpp"

#include "server/data/problem.hpp"

namespace fenceguard {
namespace {

http::Response plain_text(std::string body, std::string content_type = "text/plain; charset=utf-8") {
  http::Response response;
  response.fields.add("Content-Type", std::move(content_type));
  response.fields.add("Cache-Control", "no-store");
  response.body = std::move(body);
  return response;
}

}  // namespace

void ProbeService::handle(http::Request request, std::shared_ptr<http::Caller> /*caller*/,
                          http::Reply reply) {
  auto found = find_route(request.method, request.target);
  if (auto* response = std::get_if<http::Response>(&found)) return reply(std::move(*response));
  const Route& route = std::get<Route>(found);
  if (route.call != Call::metrics && route.call != Call::healthz && route.call != Call::readyz)
    return reply(to_response(Problem::not_found, {"Here are only the probes."}));
  reply(answer(route.call));
}

http::Response ProbeService::refuse(unsigned status, std::string_view why) {
  return refuse_request(status, why);
}

http::Response ProbeService::answer(Call call) {
  if (call == Call::healthz) return plain_text("ok\n");
  const StoreStatus status = fences_.status();
  if (call == Call::metrics) {
    metrics_.set_ready(!objection(status));
    return plain_text(metrics_.render(status, in_flight_()), "text/plain; version=0.0.4; charset=utf-8");
  }
  if (auto response = objection(status)) return std::move(*response);
  return plain_text("ready\n");
}

std::optional<http::Response> ProbeService::objection(const StoreStatus& status) const {
  if (is_draining_.load()) return to_response(Problem::unavailable, {"The guard is stopping."});
  if (status.state != StoreState::ready) return to_response(Problem::unavailable, {status.reason});
  if (const auto why = quarantine_()) return fault_response(*why, nullptr);
  return std::nullopt;
}

}  // namespace fenceguard
