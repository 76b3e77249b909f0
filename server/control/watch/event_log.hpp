#pragma once

// EventLog: the last 1,000 events that an operator asks about after an incident: refusals, take-overs,
// revokes and quarantines, numbered without gaps. A ring: what is older is forgotten, and a reader that comes
// late can tell how much it missed. Never a holder's name.
//
// Thread safety: all calls may be made from any thread. A reader holds up the others for no longer than it
// takes to copy what it asks for. Memory is that of the ring.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace fenceguard {

enum class EventKind {
  refusal,         // a claim was not admitted, or not judged
  takeover,        // a claim raised its fence
  revoke,          // a fence was closed by hand
  quarantine,      // no claim on the resource is admitted for a while; '*': on any
  quarantine_end,  // it is over
};
[[nodiscard]] const char* to_string(EventKind kind) noexcept;

struct Event {
  EventKind kind = EventKind::refusal;
  std::string resource{};
  std::string operation{};           // 'write', 'read', 'advance', 'lease', …; empty: none
  std::string verdict{};             // of a refusal
  std::int64_t token = 0;            // 0: none
  std::int64_t highest = 0;          // 0: not known
  std::string client{};              // whose request it was, as in the log; empty: none
  std::string detail{};              // why, of a fault and a quarantine
  std::chrono::milliseconds left{};  // of a quarantine
  // Set by add().
  std::uint64_t number = 0;
  std::chrono::system_clock::time_point at{};
};

class EventLog {
 public:
  static constexpr std::size_t capacity = 1'000;
  static constexpr std::size_t detail_bytes_max = 400;

  EventLog();

  // Throws std::bad_alloc; nothing was added then.
  void add(Event event);

  struct Page {
    std::vector<Event> events;  // in order
    std::uint64_t missed = 0;   // events between number and the first, which are forgotten
  };
  // Those after number; at most limit.
  [[nodiscard]] Page after(std::uint64_t number, std::size_t limit) const;
  // The last ones of a kind, the newest first; at most limit.
  [[nodiscard]] std::vector<Event> last(EventKind kind, std::size_t limit) const;
  [[nodiscard]] std::uint64_t last_number() const;

  // Tells the events of this process from those of one before it.
  [[nodiscard]] const std::string& run() const noexcept { return run_; }

 private:
  const std::string run_;
  mutable std::mutex mutex_;
  std::vector<Event> ring_;  // number N is at (N - 1) % capacity
  std::uint64_t last_ = 0;
};

}  // namespace fenceguard
