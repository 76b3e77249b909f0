#pragma once

// Guarded: the proxy as it runs in the sidecar, in front of an upstream: real server, real lanes, a real
// state in a folder of its own. And clients of it.
//
// Thread-safe where its parts are.

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/control/metrics.hpp"
#include "server/control/refusal_log.hpp"
#include "server/http/client.hpp"
#include "server/proxy/proxy_service.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/http/support.hpp"

namespace fenceguard::test {

using Pairs = std::vector<std::pair<std::string, std::string>>;
using namespace std::chrono_literals;

struct GuardedOptions {
  GuardedOptions() {
    // Longer than a machine that is busy stands still, for tests that do not wait for it.
    lane.settle = 10s;
    lane.upstream_timeout = 10s;
    limits.body_bytes_max = http::Limits::no_bound;
  }
  LaneOptions lane;  // without its state
  http::Limits limits;
  std::size_t resource_depth = 0;
  unsigned threads = 1;
  const HostCheck* hosts = nullptr;
  // Whole suites run without it by FENCEGUARD_FAST_PATH=off.
  bool has_fast_path = std::getenv("FENCEGUARD_FAST_PATH") == nullptr;
};

class Guarded {
 public:
  explicit Guarded(const std::string& upstream_url, GuardedOptions options = {});

  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  [[nodiscard]] proxy::ProxyService& service() noexcept { return *service_; }
  [[nodiscard]] proxy::LaneScheduler& lanes() noexcept { return *lanes_; }
  // The value behind NAME in the metrics, labels included in NAME; 0 if there is none.
  [[nodiscard]] double metric(const std::string& name);
  [[nodiscard]] http::RawClient connect() const { return http::RawClient{address_}; }

  // One request on a connection of its own.
  http::Response send(const std::string& method, const std::string& target, const Pairs& fields = {},
                      const std::string& body = {}) const;
  // A PUT under a token, whose upstream is asked for words.
  http::Response put(const std::string& target, std::int64_t token, const std::string& words = {},
                     const std::string& body = "x") const;

 private:
  TempDir folder_;
  Metrics metrics_{"http"};
  RefusalLog log_;
  LaneOptions lane_;
  std::unique_ptr<proxy::LaneScheduler> lanes_;
  std::unique_ptr<proxy::ProxyService> service_;
  std::string address_;
};

[[nodiscard]] Pairs claim(std::int64_t token, Pairs more = {});
[[nodiscard]] std::string field(const http::Response& response, std::string_view name);
[[nodiscard]] inline std::string verdict(const http::Response& response) {
  return field(response, "Fencing-Verdict");
}
// The bytes of a request with a body of its own length.
[[nodiscard]] std::string bytes_of(const std::string& method, const std::string& target, const Pairs& fields,
                                   const std::string& body = {});

}  // namespace fenceguard::test
