#pragma once

// FastRequest: one plain request without a coroutine: let through its lane, sent over an idle connection to
// the upstream, answered from one read. What is not so simple it gives back: no idle connection, an answer in
// parts or in chunks, an end that is not known, a deadline, a fence that must be raised, or has changed. A
// ProxiedRequest goes on then with what was read and composed, the lane's ticket and the connection, so that
// every ending but the plain one is decided there.
//
// A write leaves its lane before its client hears of it, and as over only where a complete answer says so.
// One that is dropped has its connection reset first, and leaves as unknown.
//
// Thread safety: the loop's thread only.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/data/data_service.hpp"
#include "server/http/fast_path.hpp"
#include "server/lane/lane_scheduler.hpp"
#include "server/net/poller.hpp"
#include "server/proxy/proxied_request.hpp"
#include "server/proxy/upstream/response_parser.hpp"
#include "server/proxy/upstream/upstream_pool.hpp"

namespace fenceguard::proxy {

class FastRequest;

// What the requests of one loop share. The first three outlive it.
struct FastShared {
  const ServiceContext& context;
  LaneScheduler& lanes;
  UpstreamPool& pool;
  ResponseHead answer{};                              // the one that is being read
  std::vector<std::unique_ptr<FastRequest>> spare{};  // whose memory is used again
  std::atomic<std::uint64_t> served{0};
  std::atomic<std::uint64_t> parsed{0};
};

class FastRequest final : public http::FastExchange,
                          public net::Poller::Deferred,
                          public UpstreamConnection::User {
 public:
  explicit FastRequest(FastShared& shared) : shared_{shared} {}

  // Lets it enter its lane, where it has a claim, and sends what outgoing() holds at the end of the batch.
  // Where it does not enter at once, it is given back.
  void begin(const Method& method, std::optional<Claim> claim, http::FastClient& client);
  // Where the bytes for the upstream are written, all of them.
  [[nodiscard]] std::string& outgoing() noexcept { return outgoing_; }

  // For a ProxiedRequest, which goes on with it.
  [[nodiscard]] BegunRequest take();

  [[nodiscard]] bool is_given_back() const noexcept override { return is_given_back_; }
  void release() noexcept override;
  void run_deferred() noexcept override;
  void upstream_ready() noexcept override;
  void upstream_late() noexcept override;

 private:
  void send();
  // The body of the answer, if that is whole, plain, and says how the request ended.
  [[nodiscard]] std::optional<std::string_view> read_answer();
  void write_answer(std::size_t body_bytes);
  // False: what the upstream answered may be newer than the claim.
  [[nodiscard]] bool leave_lane() noexcept;
  void note_end() noexcept;
  void keep(std::unique_ptr<UpstreamConnection> connection) noexcept;
  void fall_back() noexcept;

  [[nodiscard]] bool is_write() const noexcept { return method_.kind != Method::Kind::read; }

  FastShared& shared_;
  http::FastClient* client_ = nullptr;
  Method method_{};
  std::optional<Claim> claim_;
  std::string outgoing_;
  std::optional<Ticket> ticket_;  // it is in its lane
  std::int64_t highest_ = 0;
  std::chrono::steady_clock::time_point begun_at_{};
  BegunUpstream upstream_;
  std::optional<std::chrono::seconds> idle_max_;
  bool is_sent_ = false;
  bool is_one_segment_ = false;
  bool is_given_back_ = false;  // to a coroutine
  bool is_over_ = false;        // the answer was whole, and its connection may be used again
};

}  // namespace fenceguard::proxy
