#pragma once

// ControlService: leases, fences, metrics and probes over HTTP, as in the design's section 6. Finds out which
// call a request is and whether its client may make it, and passes it on; see route.hpp and handlers.hpp.
//
// Thread safety: as http::Handler. REQUIRES: what it refers to outlives it and its pending calls.

#include "server/control/handlers.hpp"
#include "server/control/host_check.hpp"
#include "server/control/probe_service.hpp"
#include "server/control/watch/watch_handlers.hpp"

namespace fenceguard {

class ControlService : public http::Handler {
 public:
  ControlService(ControlContext context, WatchContext watch, const HostCheck& hosts,
                 const AccessTokens& tokens, ProbeService& probe)
      : context_{context}, hosts_{hosts}, tokens_{tokens}, probe_{probe}, watch_{std::move(watch)} {}

  [[nodiscard]] std::optional<http::Response> preview(http::Request& request) override;
  void handle(http::Request request, std::shared_ptr<http::Caller> caller, http::Reply reply) override;
  [[nodiscard]] http::Response refuse(unsigned status, std::string_view why) override;

 private:
  // The route of a request that may come in, or the answer that keeps it out.
  [[nodiscard]] std::variant<Route, http::Response> admit(const http::Request& head) const;
  [[nodiscard]] std::optional<http::Response> refuse_role(Role needed, const http::Request& head) const;
  void call(Route route, const http::Request& request, const std::shared_ptr<http::Caller>& caller,
            http::Reply reply);

  const ControlContext context_;
  const HostCheck& hosts_;
  const AccessTokens& tokens_;
  ProbeService& probe_;
  LeaseHandlers leases_{context_};
  FenceHandlers fences_{context_};
  WatchHandlers watch_;
};

}  // namespace fenceguard
