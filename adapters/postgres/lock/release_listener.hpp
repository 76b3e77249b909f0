#pragma once

// Hearing of releases: one connection that listens on the channel fenceguard_released, for as many waiting
// threads as there are. Opened when the first one waits; when it is lost, all waiters wait by the clock alone
// until it is back, and are then woken once, for what was missed meanwhile. Behind a pooler there is nothing
// to hear, and it says so.
//
// Thread safety: all calls may be made from any thread at once.

#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "adapters/postgres/connect.hpp"
#include "guard/resource.hpp"
#include "guard/source/boot_condition.hpp"

namespace fenceguard::postgres {

class ReleaseListener {
 public:
  // REQUIRES: no Watch outlives it.
  explicit ReleaseListener(Address address);
  ~ReleaseListener();
  ReleaseListener(const ReleaseListener&) = delete;
  ReleaseListener& operator=(const ReleaseListener&) = delete;

  // What one waiting thread wants to hear of.
  class Watch {
   public:
    // Returns when a release of resource from now on will be heard, or it is clear that it will not (no
    // connection, a pooler), or at until, or when stop is requested.
    Watch(ReleaseListener& releases, const Resource& resource, BootClock::time_point until,
          std::stop_token stop);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // Waits until resource was released since the last wait, or since the watch began; at most until.
    void wait(BootClock::time_point until);

   private:
    friend class ReleaseListener;
    ReleaseListener& listener_;
    std::stop_token stop_;
    std::multimap<std::string, Watch*>::iterator place_;
    bool heard_ = false;
  };

 private:
  enum class State { off, opening, listening, failed, useless };

  void run(const std::stop_token& stop);
  void listen(const std::stop_token& stop);
  void enter(State state);
  void heard(const std::string& resource);

  const Address address_;
  const int wake_fd_;
  std::mutex mutex_;
  BootCondition changed_;
  std::multimap<std::string, Watch*> watches_;
  State state_ = State::off;
  std::jthread thread_;
};

}  // namespace fenceguard::postgres
