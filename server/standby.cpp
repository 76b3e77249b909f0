#include "server/standby.hpp"

#include "server/control/metrics.hpp"
#include "server/data/problem.hpp"
#include "server/http/server.hpp"

namespace fenceguard {
namespace {

class StandbySide : public http::Handler {
 public:
  void handle(http::Request request, std::shared_ptr<http::Caller> /*caller*/, http::Reply reply) override {
    if (request.target == "/healthz") return reply(plain_text("ok\n", "text/plain; charset=utf-8"));
    if (request.target == "/metrics")
      return reply(plain_text(Metrics::render_standby(), "text/plain; version=0.0.4; charset=utf-8"));
    reply(to_response(Problem::unavailable,
                      {"Another guard has the state: this one takes over when that process is dead."}));
  }
  [[nodiscard]] http::Response refuse(unsigned status, std::string_view why) override {
    return refuse_request(status, why);
  }

 private:
  static http::Response plain_text(std::string body, std::string content_type) {
    http::Response response;
    response.fields.add("Content-Type", std::move(content_type));
    response.fields.add("Cache-Control", "no-store");
    response.body = std::move(body);
    return response;
  }
};

}  // namespace

class Standby::Impl {
 public:
  Impl(const std::string& control, const std::string& probe) : server_{1} {
    // Bearer tokens are not looked at here, and nothing is told: it may listen wherever the guard will.
    control_ = server_.listen(control, side_, {});
    if (!probe.empty()) probe_ = server_.listen(probe, side_, {});
  }

  std::string control_;
  std::string probe_;

 private:
  StandbySide side_;
  http::Server server_;
};

Standby::Standby(const std::string& control, const std::string& probe)
    : impl_{std::make_unique<Impl>(control, probe)} {}
Standby::~Standby() = default;

const std::string& Standby::control_address() const noexcept {
  return impl_->control_;
}
const std::string& Standby::probe_address() const noexcept {
  return impl_->probe_;
}

}  // namespace fenceguard
