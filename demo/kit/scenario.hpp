#pragma once

// Scenario: one demonstration of 'fenceguard demo', run twice with real processes: first the damage without
// the guard, then the refusal with it. A run is a list of events, and what is shown (text, page, picture,
// JSON) is made from these and nothing else, so that every figure was answered by a process.
//
// Values; not thread-safe.

#include <boost/json/object.hpp>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "guard/token.hpp"

namespace fenceguard::demo {

class Harness;

// What an event is about, for its colour.
enum class Tone { plain, token, pause, good, bad };

// An actor asked a target, and the target answered; or an actor did something alone.
struct Event {
  enum class Pause { none, begins, ends };  // of the actor

  std::string actor{};   // one of the scenario's lanes
  std::string what{};    // ASCII, as all of these
  std::string target{};  // the lane that answered; empty: the actor acted alone
  std::string answer{};
  Tone tone = Tone::plain;
  std::optional<Token> token{};          // that was granted, or under which it was done
  std::optional<Token> fence{};          // what the guard requires from here on
  std::optional<std::int64_t> stored{};  // what the account holds from here on
  Pause pause = Pause::none;
  std::chrono::microseconds began{};  // since the start of the run: the request
  std::chrono::microseconds at{};     // its answer. Both are set by the harness where they are 0
  boost::json::object details{};      // further members of its JSON object

  [[nodiscard]] bool is_call() const { return !target.empty(); }
  [[nodiscard]] bool is_refused() const { return answer.starts_with("REFUSED"); }
};

// An observation as text: a number in decimal, true as '1' and false as '0'.
struct Fact {
  Fact(const char* words) : text{words} {}
  Fact(std::string words) : text{std::move(words)} {}
  Fact(Token token) : text{to_string(token)} {}
  Fact(std::integral auto number) : text{std::to_string(number)} {}

  std::string text;
};

// What came of one run.
struct Outcome {
  bool as_expected = false;             // the run showed what it is there to show
  std::string sentence{};               // from what was observed
  std::map<std::string, Fact> facts{};  // the observations it rests on, by name
  boost::json::object details{};        // further members of its JSON object
};

struct Run {
  bool guarded = false;
  std::optional<std::int64_t> initial{};  // what the account held at the start
  std::vector<Event> events{};            // in the order in which they ended
  Outcome outcome{};
};

struct Scenario {
  std::string_view name;
  std::string_view summary;             // one line for --help
  std::string opening;                  // what is going to happen, a few sentences
  std::vector<std::string_view> lanes;  // at most four. The last is the storage, behind the guard's line
  // Throws Unavailable where it cannot be run to its end.
  std::function<Outcome(Harness&, bool guarded)> run;
  // What a process of the scenario does that is this program, started as 'demo-actor NAME WORD...'.
  std::function<void(const std::vector<std::string>& words)> act{};
  std::string_view way_without = "without the guard";
  std::string_view way_with = "with the guard";
  // Where the picture has the guard's line.
  enum class GuardLine { second_run, both_runs, none } guard_line = GuardLine::second_run;

  [[nodiscard]] std::string_view way(const Run& shown) const {
    return shown.guarded ? way_with : way_without;
  }
  [[nodiscard]] bool has_guard_line(const Run& shown) const {
    return guard_line == GuardLine::both_runs || (shown.guarded && guard_line == GuardLine::second_run);
  }
};

// Whole milliseconds: '512 ms'. And a time to live: '500 ms', '60 s'.
[[nodiscard]] std::string milliseconds_text(std::chrono::microseconds time);
[[nodiscard]] std::string ttl_text(std::chrono::milliseconds time);

// 'the account holds 150, should be 180: B's update is LOST', or 'the account holds 180: nothing is lost'.
[[nodiscard]] std::string balance_sentence(std::int64_t balance, std::int64_t expected,
                                           std::string_view lost = "an update");

}  // namespace fenceguard::demo
