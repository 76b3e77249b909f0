#pragma once

// ProxiedRequest: one request to the proxy from its head to its answer: parsed, let through its lane where it
// carries a claim, forwarded, answered.
//
// A write leaves its lane before its client hears of it, and as over only where a complete answer says so. In
// every other case its connection is reset first, so that nothing of it can arrive later than that.
//
// Thread safety: the loop's thread only.

#include <optional>
#include <string>

#include "server/data/data_service.hpp"
#include "server/http/stream.hpp"
#include "server/proxy/lane_permit.hpp"
#include "server/proxy/request/operation.hpp"
#include "server/proxy/upstream/upstream_request.hpp"

namespace fenceguard::proxy {

// What was begun of a request on the fast path.
struct BegunRequest {
  BegunUpstream upstream;
  std::optional<Ticket> ticket;  // it has entered its lane by it
  Method method;
  std::optional<Claim> claim;
  std::string composed;      // for the upstream, all of it
  std::int64_t highest = 0;  // token of its resource, as it entered
  std::chrono::steady_clock::time_point begun_at{};
};

class ProxiedRequest {
 public:
  ProxiedRequest(const ServiceContext& context, LaneScheduler& lanes, UpstreamPool& pool,
                 http::Stream& stream)
      : context_{context},
        lanes_{lanes},
        pool_{pool},
        stream_{stream},
        permit_{lanes},
        upstream_request_{pool} {}

  // run() goes on with what was begun of this very request.
  void adopt(BegunRequest begun);
  [[nodiscard]] net::Task<void> run();

 private:
  [[nodiscard]] net::Task<void> serve();
  // True where the client was answered, and all is done.
  [[nodiscard]] net::Task<bool> reject();
  [[nodiscard]] net::Task<bool> read_small_body();
  [[nodiscard]] net::Task<bool> enter();
  [[nodiscard]] net::Task<void> write();
  [[nodiscard]] net::Task<void> read();

  // Streams an answer that is too large to be held, but for its last piece.
  [[nodiscard]] net::Task<UpstreamOutcome> relay();
  [[nodiscard]] net::Task<void> finish_streamed(std::string_view rest);

  [[nodiscard]] OutgoingRequest compose();
  void write_head(const BodyFraming& framing, bool is_body_copied);
  [[nodiscard]] bool is_overtaken() const;
  void note_entered(const EnteredEvent& entered);
  // False: the answer to a fenced read may hold what a newer token wrote, and must not be passed on.
  [[nodiscard]] bool is_fence_unchanged();
  // Counts and logs how a fenced read was ruled in the end.
  void note_read();
  // Counts the time that the upstream took.
  void observe();
  // How the write ended, as far as was seen.
  [[nodiscard]] Ending ending_of(UpstreamOutcome seen);
  [[nodiscard]] http::Response not_entered(const Entry& entry);
  [[nodiscard]] http::Response write_answer(UpstreamOutcome seen, Ending ending);
  [[nodiscard]] http::Response unanswered_read(UpstreamOutcome seen);
  // Logs which of its resources are closed by it.
  void note_quarantine();
  // Counts and logs what is no ruling.
  void note_fault(FaultKind kind, std::string_view why);

  [[nodiscard]] const Claim& own_claim() const { return operation_->claims[operation_->own]; }
  [[nodiscard]] const Resource& resource() const { return operation_->target.resource; }
  [[nodiscard]] bool is_fenced() const { return !operation_->claims.empty(); }
  [[nodiscard]] Requester requester() const { return {stream_.request().client, stream_.request().fields}; }

  const ServiceContext& context_;
  const LaneScheduler& lanes_;
  UpstreamPool& pool_;
  http::Stream& stream_;
  LanePermit permit_;  // ends after upstream_request_, which resets what is still on its way
  UpstreamRequest upstream_request_;
  std::optional<Operation> operation_;
  Ruling ruling_;     // of the own claim
  std::string head_;  // and the body too, where that is small
  std::string body_;
  std::chrono::steady_clock::time_point begun_{};
  bool is_whole_ = true;  // body_ is all of the body
  bool is_client_gone_ = false;
  bool has_entered_ = false;  // before it came here
  bool has_entered_write_ = false;
  bool is_answered_ = false;  // or begun to be
  bool is_composed_ = false;  // as is what was begun, with its body
};

}  // namespace fenceguard::proxy
