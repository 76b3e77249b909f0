#pragma once

// Flow: one request to the proxy from its head to its answer: parsed, let through its lane where it carries a
// claim, forwarded, answered.
//
// A write leaves its lane before its client hears of it, and as over only where a complete answer says so. In
// every other case its connection is reset first, so that nothing of it can arrive later than that.
//
// Thread safety: the loop's thread only.

#include <optional>
#include <string>

#include "adapters/http/forwarding.hpp"
#include "adapters/http/lane_pass.hpp"
#include "adapters/http/operation.hpp"
#include "guard/http/stream.hpp"
#include "guard/sidecar/data_service.hpp"

namespace fenceguard::proxy {

class Flow {
 public:
  Flow(const ServiceContext& context, Lanes& lanes, UpstreamPool& pool, http::Stream& stream)
      : context_{context}, lanes_{lanes}, pool_{pool}, stream_{stream}, pass_{lanes}, forwarding_{pool} {}

  [[nodiscard]] http::Task<void> run();

 private:
  [[nodiscard]] http::Task<void> serve();
  // True where the client was answered, and all is done.
  [[nodiscard]] http::Task<bool> turn_away();
  [[nodiscard]] http::Task<bool> read_small_body();
  [[nodiscard]] http::Task<bool> enter();
  [[nodiscard]] http::Task<void> write();
  [[nodiscard]] http::Task<void> read();

  // Streams an answer that is too large to be held, but for its last piece.
  [[nodiscard]] http::Task<Seen> pass_on();
  [[nodiscard]] http::Task<void> finish_streamed(std::string_view rest);

  [[nodiscard]] Outgoing compose();
  [[nodiscard]] bool is_overtaken() const;
  void note_entered(const Entered& entered);
  // False: the answer to a fenced read may hold what a newer token wrote, and must not be passed on.
  [[nodiscard]] bool stands_still();
  // Counts and logs how a fenced read was ruled in the end.
  void note_read();
  // Counts the time that the upstream took.
  void observe();
  // How the write ended, as far as was seen.
  [[nodiscard]] Ending ending_of(Seen seen);
  [[nodiscard]] http::Response not_entered(const Entry& entry);
  [[nodiscard]] http::Response write_answer(Seen seen, Ending ending);
  [[nodiscard]] http::Response unanswered_read(Seen seen);
  // Logs which of its resources are closed by it.
  void note_quarantine();
  // Counts and logs what is no ruling.
  void note_fault(FaultKind kind, std::string_view why);

  [[nodiscard]] const Claim& own_claim() const { return operation_->claims[operation_->own]; }
  [[nodiscard]] const Resource& resource() const { return operation_->target.resource; }
  [[nodiscard]] bool is_fenced() const { return !operation_->claims.empty(); }
  [[nodiscard]] const std::string& client() const { return stream_.request().client; }

  const ServiceContext& context_;
  const Lanes& lanes_;
  UpstreamPool& pool_;
  http::Stream& stream_;
  LanePass pass_;  // ends after forwarding_, which resets what is still on its way
  Forwarding forwarding_;
  std::optional<Operation> operation_;
  Ruling ruling_;  // of the own claim
  std::string head_;
  std::string body_;
  std::chrono::steady_clock::time_point begun_{};
  bool is_whole_ = true;  // body_ is all of the body
  bool is_client_gone_ = false;
  bool has_entered_write_ = false;
  bool is_answered_ = false;  // or begun to be
};

}  // namespace fenceguard::proxy
