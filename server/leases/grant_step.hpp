#pragma once

// GrantStep: one attempt to hand out a lease: ask the source, advance the guard, and where the source has
// fallen behind the guard lift it and take the lock again. No client is told of a grant that the guard has
// not advanced: a step ends granted and advanced, or held, or with a fault. Nor of one that is over: the
// advance may have waited for older writes longer than the lease lives, so a lease that is no longer fresh is
// renewed before the step ends, and ends it as Expired where that comes too late.
//
// What a fault leaves behind: nothing where it is 'unavailable', because what this step was granted was given
// back. After 'unknown' there may be a lease, which ends with its time to live or is had by asking again.
// Only a lease that no other step can have been granted is given back: a named holder may have the same lease
// from an earlier ask.
//
// Calls of the source block, so they run where run_blocking puts them; the guard answers on a thread of its
// own, and nothing waits for it.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "guard/store/pending_calls.hpp"
#include "guard/store/storage.hpp"
#include "guard/token_source.hpp"
#include "server/control/metrics.hpp"
#include "server/control/refusal_log.hpp"

namespace fenceguard {

// What a caller asks for.
struct LeaseRequest {
  Resource resource;
  Holder holder;
  bool is_named;  // the caller chose the holder, so it may be one that asks again
  std::chrono::milliseconds ttl;
  std::chrono::milliseconds wait;
  std::string client;      // see http::Request::client
  std::string trace_id{};  // of the request; empty: none
};

// Granted and advanced, but lost before the client could be told.
struct Expired {};

using GrantEnd = std::variant<Grant, LockBusy, Expired, Fault>;

class GrantStep : public std::enable_shared_from_this<GrantStep> {
 public:
  static constexpr int attempts_max = 5;

  // What a step works with. All of it outlives the step.
  struct Context {
    TokenSource& source;
    FenceStore& fences;
    Metrics& metrics;
    RefusalLog& log;
    PendingCalls& pending;
    std::function<void(std::function<void()>)> run_blocking;
    std::function<void(std::function<void()>)> run_renewal;
  };

  GrantStep(const Context& context, LeaseRequest request, std::function<void(GrantEnd)> done)
      : context_{context}, request_{std::move(request)}, done_{std::move(done)} {}

  // Starts; done is called once, on any thread.
  void start();

 private:
  void ask();
  void advance(Grant grant);
  void advanced(const Grant& grant, const Outcome<Ruling>& outcome);
  void renew(Grant grant);
  void lift(const Grant& grant, const Ruling& ruling);
  [[nodiscard]] bool give_back(const Claim& claim);
  void give_back_unseen();
  void end_refused(const Grant& grant, std::string message);
  void end(GrantEnd end) { done_(std::move(end)); }

  const Context& context_;
  const LeaseRequest request_;
  std::function<void(GrantEnd)> done_;
  int attempts_ = 0;
};

}  // namespace fenceguard
