#pragma once

// FastPath: the fast path of one loop: which requests it takes, and what they use again of each other's
// memory. A request is taken where nothing of it can be understood in two ways and its claim needs no more
// than a look at its fence: GET, PUT, POST, PATCH and DELETE, whole, with a plain path, no field that means
// something to a proxy but Host, Content-Length and Connection: keep-alive, and a claim of token and holder,
// or none.
//
// Thread safety: the loop's thread only, but for served() and parsed().

#include <cstdint>
#include <memory>

#include "server/data/data_service.hpp"
#include "server/http/fast_path.hpp"
#include "server/lane/lane_scheduler.hpp"
#include "server/proxy/fast/fast_request.hpp"
#include "server/proxy/upstream/upstream_pool.hpp"

namespace fenceguard::proxy {

class FastPath {
 public:
  // All three outlive it.
  FastPath(const ServiceContext& context, LaneScheduler& lanes, UpstreamPool& pool)
      : shared_{context, lanes, pool} {}

  // As StreamHandler::begin.
  [[nodiscard]] http::FastExchangePtr begin(const http::PlainRequest& request, http::FastClient& client);

  // Requests that were answered here.
  [[nodiscard]] std::uint64_t served() const noexcept {
    return shared_.served.load(std::memory_order_relaxed);
  }
  // Requests that were read and composed here: what was not answered goes on as it is.
  [[nodiscard]] std::uint64_t parsed() const noexcept {
    return shared_.parsed.load(std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] std::unique_ptr<FastRequest> make_request();

  FastShared shared_;
};

}  // namespace fenceguard::proxy
