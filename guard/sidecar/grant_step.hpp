#pragma once

// GrantStep: one attempt to hand out a lease: ask the source, advance the guard, and where the source has
// fallen behind the guard lift it and take the lock again. Nobody is told of a grant that the guard has not
// advanced: a step ends granted and advanced, or held, or with a fault after the lease was given back.
//
// Calls of the source block, so they run where run_blocking puts them; the guard answers on a thread of its
// own, and nothing waits for it.

#include <chrono>
#include <functional>
#include <memory>
#include <variant>

#include "guard/sidecar/metrics.hpp"
#include "guard/sidecar/pending_calls.hpp"
#include "guard/sidecar/refusal_log.hpp"
#include "guard/storage.hpp"
#include "guard/token_source.hpp"

namespace fenceguard {

using GrantEnd = std::variant<Grant, Held, Fault>;

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
  };

  GrantStep(const Context& context, Resource resource, Holder holder, std::chrono::milliseconds ttl,
            std::function<void(GrantEnd)> done)
      : context_{context},
        resource_{std::move(resource)},
        holder_{std::move(holder)},
        ttl_{ttl},
        done_{std::move(done)} {}

  // Starts; done is called once, on any thread.
  void start();

 private:
  void ask();
  void advance(Grant grant);
  void advanced(const Grant& grant, const Outcome<Ruling>& outcome);
  void lift(const Grant& grant, const Ruling& ruling);
  void give_back(const Claim& claim);
  [[nodiscard]] bool give_back_unseen();
  void end(GrantEnd end) { done_(std::move(end)); }

  const Context& context_;
  const Resource resource_;
  const Holder holder_;
  const std::chrono::milliseconds ttl_;
  std::function<void(GrantEnd)> done_;
  int attempts_ = 0;
};

}  // namespace fenceguard
