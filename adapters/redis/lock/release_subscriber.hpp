#pragma once

// ReleaseSubscriber: the threads of this process that wait for a lock. One connection, opened when the first
// one waits, hears of the releases of all resources. Of the waiters for one resource only the first is woken,
// asks the server, and passes the turn on, so that a release costs one script per process and not one per
// waiter. Where a release may go unheard (no connection, a lease that runs out) the first one goes by the
// clock.
//
// Thread safety: all calls may be made from any thread at once.

#include <chrono>
#include <list>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "adapters/redis/address.hpp"
#include "guard/source/boot_condition.hpp"

namespace fenceguard::redis {

class ReleaseSubscriber {
  struct WaitQueue;

 public:
  // REQUIRES: no Waiter outlives it.
  explicit ReleaseSubscriber(Address address);
  ~ReleaseSubscriber();
  ReleaseSubscriber(const ReleaseSubscriber&) = delete;
  ReleaseSubscriber& operator=(const ReleaseSubscriber&) = delete;

  // The entry of one waiting thread in the wait queue of a channel.
  class Waiter {
   public:
    // id: by which a message calls this one alone; empty: calls are for the first waiter.
    Waiter(ReleaseSubscriber& waiters, const std::string& channel, std::string id, std::stop_token stop);
    // The next waiter then looks in its stead, unless this one said when to.
    ~Waiter();
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    enum class Wake {
      called,  // by its own id
      first,   // it is first in its queue, and something was heard, or it is time to look
      over,    // the deadline has passed, or stop was requested
    };
    [[nodiscard]] Wake wait(BootClock::time_point deadline);

    // Says that looking again before then is useless unless a release is heard.
    void look_after(std::chrono::milliseconds duration);

    // The same for the beginning of a wait: it moves the next look forward only, and forgets nothing heard.
    void look_no_later(std::chrono::milliseconds duration);

    // All ids in this queue, in their order.
    [[nodiscard]] std::vector<std::string> ids() const;

    // Wakes the one of this id, if it waits here.
    void call(const std::string& id);

   private:
    friend class ReleaseSubscriber;
    [[nodiscard]] bool is_first() const;
    [[nodiscard]] bool is_due(BootClock::time_point now) const;
    [[nodiscard]] BootClock::time_point wakes_at(BootClock::time_point deadline) const;

    ReleaseSubscriber& subscriber_;
    const std::string id_;
    const std::stop_token stop_;
    WaitQueue* line_;
    std::list<Waiter*>::iterator at_;
    BootCondition woken_;
    bool is_called_ = false;
    bool owes_look_ = false;  // it was woken and has not said yet what came of it
  };

 private:
  class Subscription;
  friend class Subscription;

  void run(const std::stop_token& stop);
  void listen(const std::stop_token& stop);
  void subscribe(Subscription& link);
  void drop_idle(Subscription& link);
  void heard(const std::string& channel, const std::string& id);
  void subscribed(const std::string& channel);
  void lost();
  static void wake_first(WaitQueue& line);
  void wake_thread() const;

  const Address address_;
  const int wake_fd_;
  std::mutex mutex_;
  BootCondition changed_;
  std::map<std::string, WaitQueue> lines_;  // by channel
  std::jthread thread_;
};

}  // namespace fenceguard::redis
