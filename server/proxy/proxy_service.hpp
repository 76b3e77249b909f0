#pragma once

// ProxyService: HTTP/1.1 in front of a storage that knows nothing of tokens: every write and every fenced
// read goes through the lane of its resource, and is forwarded on the thread that its client's connection
// lives on.
//
// Thread safety: all calls may be made from any thread.

#include <cstdint>
#include <memory>

#include "server/data/data_service.hpp"
#include "server/lane/lane_scheduler.hpp"
#include "server/proxy/upstream/upstream_options.hpp"

namespace fenceguard::proxy {

class ProxyService : public DataService {
 public:
  // lanes outlive the service. Throws Unavailable if a thread cannot be made.
  ProxyService(const ServiceContext& context, LaneScheduler& lanes, UpstreamOptions options);
  // As drain(0).
  ~ProxyService() override;

  std::string listen(const std::string& address) override;
  bool drain(std::chrono::milliseconds timeout) override;
  bool reload_upstream_certificates() override;
  bool reset_writes(std::string_view resource, std::int64_t token_max,
                    std::chrono::milliseconds limit) override;
  [[nodiscard]] bool answers(std::chrono::milliseconds limit) override;
  [[nodiscard]] std::int64_t in_flight() const noexcept override;
  [[nodiscard]] LaneFigures lanes() const override;
  [[nodiscard]] LanePage list_lanes(const FenceListing& listing, Lanes which) const override;
  [[nodiscard]] std::optional<Fault> quarantine(std::string_view resource) const override;

  // How many requests were answered without a coroutine.
  [[nodiscard]] std::uint64_t served_fast() const;
  // How many times a request was read into an operation, on either way: once each.
  [[nodiscard]] std::uint64_t parsed() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fenceguard::proxy
