#pragma once

// The calls of the control side, one function each: what was routed and allowed in, an answer out.
// LeaseHandlers are about the token source, FenceHandlers about the guard. Calls of the source block, so they
// run on the service's threads; the guard answers on its own.
//
// Thread safety: all calls may be made from any thread. Both throw InvalidInput for a body that is none.

#include "guard/store/pending_calls.hpp"
#include "server/control/metrics.hpp"
#include "server/control/refusal_log.hpp"
#include "server/control/route.hpp"
#include "server/data/signature.hpp"
#include "server/http/wire/message.hpp"
#include "server/leases/lease_service.hpp"

namespace fenceguard {

// What the calls work with. All of it outlives them.
struct ControlContext {
  FenceStore& fences;
  TokenSource* source;    // null: none
  LeaseService* service;  // null if there is no source
  Metrics& metrics;
  RefusalLog& log;
  PendingCalls& pending;
  SignatureRules signatures{};
  std::size_t resource_depth = 0;  // as on the data side
  // See DataService.
  std::function<std::optional<Fault>(std::string_view resource)> quarantine{};
  std::chrono::milliseconds source_wait{};  // see SidecarOptions
  // Tells the guard that a holder gives its lease back. Blocks until it is durable. Empty: no need to.
  std::function<void(const Claim&)> finish{};

  // The answer to a claim in the fields that is not signed and should be; it is counted and logged.
  [[nodiscard]] std::optional<http::Response> refuse_unsigned(std::string_view operation, const Claim& claim,
                                                              const http::Fields& fields,
                                                              const Requester& requester) const;
  // A name that the data side gives to no path would be locked in vain. Throws InvalidInput.
  void require_protected(const Resource& resource) const;
};

// A call that was not made, because too many wait for the source.
[[nodiscard]] inline Fault source_is_busy() {
  return {FaultKind::unavailable, "Too many calls wait for the token source."};
}

class LeaseHandlers {
 public:
  explicit LeaseHandlers(const ControlContext& context) : context_{context} {}

  // REQUIRES, for all: there is a source.
  void acquire(const http::Request& request, const std::shared_ptr<http::Caller>& caller, http::Reply reply);
  void renew(const Resource& resource, const http::Request& request, http::Reply reply);
  void release(const Resource& resource, const http::Request& request, http::Reply reply);
  void show(const Resource& resource, http::Reply reply);
  // 501 where the source cannot say which leases there are.
  void list(const FenceListing& listing, const http::Reply& reply);
  // Lifts the source, so that it draws above a mark that is at most jump_max above what the guard has seen.
  void raise(const Resource& resource, const http::Request& request, http::Reply reply);
  static constexpr std::int64_t jump_max = std::int64_t{1} << 40;

 private:
  // Runs call, which blocks, and sends its answer; a fault becomes one, and so does a service that is too
  // busy.
  enum class Kind { renewal, other };
  void run(Kind kind, const std::optional<Resource>& resource, const http::Reply& reply,
           std::function<http::Response()> call);
  void count_fault(const Fault& fault);

  const ControlContext& context_;
};

class FenceHandlers {
 public:
  explicit FenceHandlers(const ControlContext& context) : context_{context} {}

  void show(const Resource& resource, http::Reply reply);
  void list(FenceListing listing, http::Reply reply);
  void advance(const Resource& resource, const http::Request& request, http::Reply reply);
  // Closes the fence, then ends the lease, so that the holder cannot renew its way back in between. A source
  // that does not answer within source_wait leaves the lease to its time to live: the fence is what keeps the
  // holder out.
  void revoke(const Resource& resource, const std::string& client, const http::Reply& reply);
  void compact(const http::Reply& reply);

 private:
  // What becomes of the lease that a revoke is to end.
  enum class LeaseEnd { ended, not_there, not_known };
  struct Revocation {
    Resource resource;
    std::string client;
    http::Reply reply;
    std::optional<Claim> lease{};  // the present one
    bool leaves_lease = false;     // the source does not answer
  };
  using Next = std::function<void()>;

  // Runs ask, which blocks, and what it answers; late instead where that takes longer than source_wait.
  void ask_source(std::function<Next()> ask, Next late);
  [[nodiscard]] Next look_and_close(Revocation revocation);
  void close_fence(const Revocation& revocation);
  [[nodiscard]] std::optional<Fault> quarantine_of(const Resource& resource) const;
  void end_lease(const Revocation& revocation, const FenceView& view);
  [[nodiscard]] LeaseEnd end_revoked(const Resource& resource, const FenceView& view);
  void answer_revoked(const Revocation& revocation, const FenceView& view, LeaseEnd end);

  const ControlContext& context_;
};

}  // namespace fenceguard
