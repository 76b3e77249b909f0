#pragma once

// ControlSide: leases, fences, metrics and probes over HTTP, as in the design's section 6. Finds out which
// call a request is, who may make it, and passes it on; see route.hpp and control_calls.hpp.
//
// Thread safety: as http::Handler. REQUIRES: what it refers to outlives it and its pending calls.

#include "guard/sidecar/control_calls.hpp"
#include "guard/sidecar/host_check.hpp"
#include "guard/sidecar/probe_side.hpp"

namespace fenceguard {

class ControlSide : public http::Handler {
 public:
  ControlSide(ControlContext context, const HostCheck& hosts, const AccessTokens& tokens, ProbeSide& probe)
      : context_{context}, hosts_{hosts}, tokens_{tokens}, probe_{probe} {}

  [[nodiscard]] std::optional<http::Response> preview(const http::Request& head) override;
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
  ProbeSide& probe_;
  LeaseCalls leases_{context_};
  FenceCalls fences_{context_};
};

}  // namespace fenceguard
