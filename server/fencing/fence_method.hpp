#pragma once

// FenceMethod: one way to shut an old holder out, before the next one goes on: a command, a call of an HTTP
// service, or what a storage offers. What Hadoop calls a FenceMethod (dfs.ha.fencing.methods).
//
// Thread safety: run() may be called from any thread, also side by side for several resources.

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>

#include "guard/resource.hpp"
#include "guard/token.hpp"

namespace fenceguard {

// Who is to be shut out, and why. Never a holder's name. '*' with the tokens 0: another guard, and with it
// all holders that it let in.
struct TakeOver {
  std::string resource;
  std::int64_t old_token = 0;  // all holders up to this one
  std::int64_t new_token = 0;  // who comes after; old_token again: nobody yet

  [[nodiscard]] bool is_of_guard() const noexcept { return new_token == 0; }
};

// What came of a method.
struct FenceResult {
  enum class Outcome {
    success,  // the old holder is shut out
    failure,  // it may not be
    timeout,  // likewise, because it took too long
  };
  Outcome outcome = Outcome::failure;
  std::string detail{};  // for people: why, or what it said; a few KB at most, without control characters
};
[[nodiscard]] const char* to_string(FenceResult::Outcome outcome) noexcept;

// What a run has to go by.
struct FenceRun {
  std::chrono::milliseconds limit{10'000};
  std::stop_token stop{};  // end it, and answer that it failed
  // Of a lane: resets the connections of the take-over's old holders. Empty: there is none.
  std::function<bool(const TakeOver&, std::chrono::milliseconds limit)> reset_upstream{};
};

class FenceMethod {
 public:
  virtual ~FenceMethod() = default;
  // The word of --fence-method: 'command'. A label of the metrics.
  [[nodiscard]] virtual std::string name() const = 0;
  // False: its success would say nothing of this take-over, and it is not run for it.
  [[nodiscard]] virtual bool fits(const TakeOver& /*take_over*/) const { return true; }
  // Blocks, for little longer than the limit. Throws nothing but std::bad_alloc.
  [[nodiscard]] virtual FenceResult run(const TakeOver& take_over, const FenceRun& run) = 0;
};

// text with its control characters as spaces, cut at bytes_max.
[[nodiscard]] std::string printable(std::string_view text, std::size_t bytes_max = 2'048);

}  // namespace fenceguard
