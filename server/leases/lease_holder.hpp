#pragma once

// LeaseHolder: what 'serve --hold' does: takes the leases of some resources in the name of all clients of a
// data side, advances their fences, renews, and tells the data side what is held; when one is lost all are
// given back, and it waits in line again, for new tokens. Held is either all of them or none.
//
// Leases are taken in the order of their resources' names, one after another, so that two holders of the same
// ones never wait for each other. As every loss, ours is a courtesy: what keeps a stale session out is the
// storage, which has seen the newer token.
//
// A connection is of the tenure in which it was opened, and ends with it. But a driver opens the next one by
// itself, and its program goes on with what it has read: so a connection is let in only where its program is
// seen to have begun after the tenure did. See ProgramCheck.
//
// Thread safety: all calls may be made from any thread.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "guard/guard.hpp"
#include "guard/lease.hpp"
#include "guard/store/storage.hpp"
#include "server/control/metrics.hpp"
#include "server/control/refusal_log.hpp"
#include "server/leases/program_check.hpp"
#include "server/leases/tenure_program.hpp"
#include "server/net/loop.hpp"

namespace fenceguard {

// The claims of one tenure. Clients that began under it end with it.
class HeldClaims {
 public:
  // lost_before: when the tenure before ended; nothing: this is the first.
  HeldClaims(std::vector<Claim> held, std::stop_source end,
             std::optional<std::chrono::system_clock::time_point> lost_before);

  const std::vector<Claim> claims;  // by their resources' names; at least one
  const Token highest;              // of theirs; no two tenures have the same
  // From here on nothing is read that an earlier holder may still overwrite.
  const BootClock::time_point begun = BootClock::now();
  const bool is_first;
  // A sentence for a program that may be older: what happened, and that it starts again from the read.
  const std::string history;
  // It is lost, or about to be given back.
  [[nodiscard]] bool is_over() const noexcept { return is_over_.load(); }
  // A fence has refused one of them: they are given back, and taken anew. Does not block.
  void refused() { end_.request_stop(); }

 private:
  friend class LeaseHolder;
  std::stop_source end_;
  std::atomic<bool> is_over_{false};
};

class LeaseHolder {
 public:
  struct Options {
    std::vector<Resource> resources{};  // at least one; each counts once
    std::chrono::milliseconds ttl{10'000};
    bool takes_any_program = false;  // also one that may be older than the tenure
    std::shared_ptr<TenureProgram>
        program{};  // whose connections alone are let in; null: of any that began since
  };

  // All outlive it. Throws InvalidInput for a time to live that makes no sense.
  LeaseHolder(TokenSource& source, FenceStore& fences, Metrics& metrics, RefusalLog& log, Options options);
  // Calls stop().
  ~LeaseHolder();
  LeaseHolder(const LeaseHolder&) = delete;
  LeaseHolder& operator=(const LeaseHolder&) = delete;

  // Begins, and returns when the first attempt has ended, or after limit: what was free is held then. lost is
  // called after each loss, on a thread of the holder's own, and must not block.
  void start(std::function<void()> lost, std::chrono::milliseconds limit);

  // Null: not all are held.
  [[nodiscard]] std::shared_ptr<HeldClaims> present() const;
  // A sentence for the client that comes meanwhile.
  [[nodiscard]] std::string absence() const;
  // Why the program at the other end of socket may not write under held before it says that it begins anew;
  // empty: it may. client: the host that it comes from. REQUIRES: awaited on the loop's thread.
  [[nodiscard]] net::Task<std::string> objection_to(net::Loop& loop, int socket,
                                                    std::shared_ptr<const HeldClaims> held,
                                                    std::string client) const;

  // Takes no lease any more; what is held stays held, while its program is ended. Blocks for so long.
  void stop_taking();
  // Likewise, and gives back what is held; blocks until that is done, which takes as long as the source does.
  void stop();

 private:
  // The storage's fences, for grants of the guard's own source.
  class OwnGuard : public Guard {
   public:
    OwnGuard(FenceStore& fences, Metrics& metrics, RefusalLog& log)
        : fences_{fences}, metrics_{metrics}, log_{log} {}
    [[nodiscard]] Ruling advance(const Claim& claim) override;

   private:
    FenceStore& fences_;
    Metrics& metrics_;
    RefusalLog& log_;
  };

  // Until when each of the leases is held; long ago where none is.
  class Terms {
   public:
    explicit Terms(std::size_t count) : until_(count) {}
    // Tells the program until when all are held, one call after another.
    void note(std::size_t index, BootClock::time_point moment, TenureProgram& program);
    [[nodiscard]] BootClock::time_point held_until() const;

   private:
    mutable std::mutex mutex_;  // guards until_
    std::vector<BootClock::time_point> until_;
  };

  // What the thread remembers of the tenures and attempts before.
  struct Past {
    std::string failure;  // that was logged last
    std::optional<std::chrono::system_clock::time_point> lost_at;
  };

  void run(const std::stop_token& stop);
  // Those from claims.size() on. False: the source or the guard kept refusing.
  bool hold_rest(std::vector<Claim>& claims, const std::stop_source& end, std::chrono::milliseconds wait);
  void stay(const std::vector<Claim>& claims, const std::stop_source& end);
  static void log(std::string_view event, const std::vector<Claim>& claims) noexcept;
  void note_loss(const Lease& lease) const;
  void note_failure(std::string reason);
  [[nodiscard]] bool is_stopping() const;

  TokenSource& source_;
  Metrics& metrics_;
  RefusalLog& log_;
  const Options options_;
  OwnGuard guard_;
  std::function<void()> lost_;
  const std::unique_ptr<ProgramCheck> programs_;  // null: any may
  Terms terms_;
  Past past_;                 // the thread's own
  mutable std::mutex mutex_;  // guards the next three
  std::shared_ptr<HeldClaims> present_;
  bool takes_ = true;
  bool has_tried_ = false;
  std::condition_variable_any changed_;
  std::stop_source waiting_;  // ends what waits for a lease
  std::jthread thread_;
};

}  // namespace fenceguard
