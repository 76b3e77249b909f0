#pragma once

// Watch: what a running guard notes about itself once a second, on a thread of its own: samples of its
// verdicts, and which quarantines are over.
//
// Thread safety: all calls may be made from any thread.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "guard/error.hpp"
#include "server/control/metrics.hpp"
#include "server/control/watch/event_log.hpp"
#include "server/control/watch/verdict_window.hpp"

namespace fenceguard {

class Watch {
 public:
  using Quarantine = std::function<std::optional<Fault>(std::string_view resource)>;

  // quarantine: see DataService. REQUIRES: all outlive the watch.
  Watch(const Metrics& metrics, EventLog& events, Quarantine quarantine);
  // Calls stop().
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Once. Throws std::system_error.
  void start();
  void stop();

  [[nodiscard]] const EventLog& events() const noexcept { return events_; }
  [[nodiscard]] std::chrono::system_clock::time_point started_at() const noexcept { return started_at_; }
  [[nodiscard]] std::chrono::milliseconds uptime() const;
  [[nodiscard]] VerdictWindow::Window verdicts() const;

  // One look, as the thread does it.
  void look(BootClock::time_point now);

 private:
  static constexpr std::chrono::seconds apart{1};
  static constexpr std::size_t quarantines_max = EventLog::capacity;

  const Metrics& metrics_;
  EventLog& events_;
  const Quarantine quarantine_;
  const std::chrono::system_clock::time_point started_at_ = std::chrono::system_clock::now();
  const BootClock::time_point began_ = BootClock::now();
  VerdictWindow window_{began_};

  std::uint64_t seen_ = 0;                        // of the events; the thread's own
  std::set<std::string, std::less<>> resources_;  // whose quarantine was told and is not over; likewise

  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace fenceguard
