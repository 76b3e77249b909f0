#pragma once

// Run: what happened in one telling of the demonstration's story, as plain values, and what it amounts to.
// Everything that is shown (text, page, JSON) is made from these and from nothing else, so a figure that is
// shown was measured.
//
// The story: two clients share an account and its lock. Client A is stopped in the middle of its work for
// longer than its lease lasts, client B works meanwhile, then A goes on and writes.
//
// Pure: no I/O, no clock. Values; safe to use from any thread.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "guard/token.hpp"

namespace fenceguard::demo {

enum class Party { a, b };

// 'A' or 'B'.
[[nodiscard]] char letter(Party party) noexcept;

enum class Step {
  lock_held,      // asked for the lock, which somebody else holds
  lock_granted,   // was granted the lock, with a token
  balance_read,   // read the balance
  stopped,        // the process was stopped by SIGSTOP
  continued,      // the process was continued by SIGCONT
  written,        // wrote a balance, and the storage took it
  refused,        // wrote a balance, and the guard refused it as stale
  rolled_back,    // dropped what it had worked out
  lock_released,  // gave the lock back
};

// The word in JSON, and the step it stands for.
[[nodiscard]] const char* to_string(Step step) noexcept;
[[nodiscard]] std::optional<Step> parse_step(std::string_view word) noexcept;

struct Event {
  Step step = Step::lock_held;
  Party who = Party::a;
  std::chrono::microseconds began{};     // since the start of the run: the request was sent
  std::chrono::microseconds ended{};     // its answer was there; the same as began where there was no request
  std::optional<Token> token;            // under which the client works
  std::optional<std::int64_t> balance;   // read, written, or dropped
  std::optional<std::int64_t> based_on;  // written, refused: the balance that the client had read before
  std::optional<Token>
      highest;  // refused: the newest token the guard has seen. lock_granted: the same, asked afterwards
  unsigned status = 0;  // of the HTTP answer, where there was one

  friend bool operator==(const Event&, const Event&) = default;
};

struct Run {
  bool guarded = false;  // the writes went through the guard
  bool direct = false;   // the clients write to the storage themselves, and it is what judges
  std::string resource;  // the account, and its lock
  std::int64_t initial = 100;
  std::int64_t add_a = 50;
  std::int64_t add_b = 30;
  std::chrono::milliseconds ttl{500};
  std::vector<Event> events;                  // in the order in which they ended
  std::optional<std::int64_t> final_balance;  // read from the storage itself, afterwards

  [[nodiscard]] std::int64_t expected() const noexcept { return initial + add_a + add_b; }
};

// Whose addition is missing from the final balance.
enum class Loss { none, a, b, other };
[[nodiscard]] Loss loss(const Run& run) noexcept;

// True if the run shows what it is there to show. Round the guard: A was stopped for longer than its lease,
// wrote after B, and B's addition is lost. Through it: A was stopped likewise, refused as stale, rolled back
// and wrote again with a higher token, and nothing is lost.
[[nodiscard]] bool is_as_it_must_be(const Run& run);

// '150, should be 180: B's +30 is LOST', or '180: both updates survive'.
[[nodiscard]] std::string balance_sentence(const Run& run);

// For how long the party was stopped, if it was and was continued.
[[nodiscard]] std::optional<std::chrono::microseconds> pause_of(const Run& run, Party party);

}  // namespace fenceguard::demo
