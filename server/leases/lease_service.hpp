#pragma once

// LeaseService: hands out leases through the control side. Decisions are LeaseQueue's; the service gives it
// the time, runs its steps and answers the callers. Calls of the source run on a few threads of the service's
// own; a waiting ask occupies none. Renewals have threads to themselves: a source that hangs where it is
// asked for new leases must not make live ones expire.
//
// What can go wrong between two steps, and what keeps it right:
//   grant, then advance fails        the lease is given back before the caller is answered (GrantStep)
//   grant, then the caller is gone   given back, unless the same holder has asked again (LeaseQueue)
//   give back, same holder asks      the ask is queued until that lease was given back, then takes a new one
//   source says held, then released  the release is remembered during the step; the source is asked once more
//   stop while a step is under way   the step ends and is answered; finish() waits for it
//
// Thread safety: all calls may be made from any thread.

#include <chrono>
#include <functional>
#include <memory>
#include <variant>

#include "server/http/wire/message.hpp"
#include "server/leases/grant_step.hpp"

namespace fenceguard {

class LeaseService {
 public:
  static constexpr std::size_t asks_max = 10'000;
  static constexpr std::size_t calls_max = 1'000;
  static constexpr std::size_t threads = 8;  // for new leases and other calls; as many for renewals

  using Request = LeaseRequest;

  // Granted, and advanced at the guard. If the answer cannot be delivered, undelivered is to be called.
  struct Granted {
    Grant grant;
    std::function<void()> undelivered;
  };
  struct Dismissed {};  // the caller went away, there are too many, or the sidecar stops
  using Answer = std::variant<Granted, LockBusy, Fault, Dismissed>;

  LeaseService(TokenSource& source, FenceStore& fences, Metrics& metrics, RefusalLog& log);
  // Calls close() and finish().
  ~LeaseService();
  LeaseService(const LeaseService&) = delete;
  LeaseService& operator=(const LeaseService&) = delete;

  // Answers once, on any thread. Does not block.
  void acquire(Request request, const std::shared_ptr<http::Caller>& caller,
               std::function<void(Answer)> answer);

  // A lease of resource was released or ended: the next in the queue need not wait.
  void released(const Resource& resource);

  // Run a call that blocks on one of the service's threads. False, and it is not run, where calls_max of that
  // kind wait for a thread already.
  [[nodiscard]] bool run_blocking(std::function<void()> call);
  [[nodiscard]] bool run_renewal(std::function<void()> call);

  // Runs call, which does not block, after delay on the service's own thread; not any more once it has
  // finished.
  void run_after(std::chrono::milliseconds delay, std::function<void()> call);

  // Whether the service's own thread comes round to what it is given within limit. Blocks until then.
  [[nodiscard]] bool answers(std::chrono::milliseconds limit);

  // Dismisses all waiting asks and takes no more.
  void close();

  // Blocks until every step has ended. REQUIRES: close() was called, and nothing calls the service any more.
  void finish();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace fenceguard
