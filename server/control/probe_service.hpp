#pragma once

// ProbeService: /metrics, /healthz and /readyz, for probes from outside. The control side answers the same
// three with it. Open to every client that reaches it; changes nothing.
//
// Thread safety: as http::Handler.

#include <atomic>
#include <functional>

#include "guard/store/storage.hpp"
#include "server/control/metrics.hpp"
#include "server/control/route.hpp"
#include "server/http/wire/message.hpp"

namespace fenceguard {

class ProbeService : public http::Handler {
 public:
  using Quarantine = std::function<std::optional<Fault>()>;

  // in_flight: requests on the data side that are not answered. quarantine: why no write is admitted, if so.
  // REQUIRES: all outlive the handler.
  ProbeService(const FenceStore& fences, Metrics& metrics, std::function<std::int64_t()> in_flight,
               Quarantine quarantine)
      : fences_{fences},
        metrics_{metrics},
        in_flight_{std::move(in_flight)},
        quarantine_{std::move(quarantine)} {}

  // Not ready from now on.
  void set_draining() { is_draining_.store(true); }

  void handle(http::Request request, std::shared_ptr<http::Caller> caller, http::Reply reply) override;
  [[nodiscard]] http::Response refuse(unsigned status, std::string_view why) override;

  // REQUIRES: call is metrics, healthz or readyz.
  [[nodiscard]] http::Response answer(Call call);

 private:
  // What /readyz answers where the guard is not ready.
  [[nodiscard]] std::optional<http::Response> objection(const StoreStatus& status) const;

  const FenceStore& fences_;
  Metrics& metrics_;
  std::function<std::int64_t()> in_flight_;
  Quarantine quarantine_;
  std::atomic<bool> is_draining_{false};
};

}  // namespace fenceguard
