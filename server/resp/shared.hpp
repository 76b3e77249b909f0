#pragma once

// Shared: what the sessions of one data side work with: what the operator set, and the connections to Redis
// of each loop.
//
// Thread safety: all calls may be made from any thread.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "adapters/redis/address.hpp"
#include "server/data/data_service.hpp"
#include "server/resp/replies/relay_options.hpp"
#include "server/resp/unsettled_claims.hpp"
#include "server/resp/upstream/upstreams.hpp"
#include "server/resp/wire/request_reader.hpp"

namespace fenceguard::resp {

// What an operator sets.
struct RespOptions {
  redis::Address address{};
  RelayOptions relay{};
  RequestLimits requests{};
  std::size_t output_bytes_max = std::size_t{1} << 30;  // that wait for one client
  UpstreamLimits upstreams{};
};

class Shared {
 public:
  Shared(const ServiceContext& context_of_service, RespOptions options_of_service)
      : context{context_of_service}, options{std::move(options_of_service)} {}

  // Those of a loop, for its thread.
  [[nodiscard]] std::shared_ptr<Upstreams> upstreams_of(net::Loop& loop);
  // Ends them, on the loop's thread, when no session is left.
  void drop_upstreams(net::Loop& loop);
  [[nodiscard]] std::int64_t next_number() noexcept { return ++numbers_; }

  const ServiceContext context;
  const RespOptions options;
  UnsettledClaims unsettled;

 private:
  std::atomic<std::int64_t> numbers_{0};
  std::mutex mutex_;
  std::map<net::Loop*, std::shared_ptr<Upstreams>> upstreams_;
};

}  // namespace fenceguard::resp
