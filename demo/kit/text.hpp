#pragma once

// Text: a scenario's runs for a terminal, a column for the time and one for each lane, and as JSON.
//
// Pure; safe to use from any thread.

#include <string>
#include <string_view>
#include <vector>

#include "demo/kit/scenario.hpp"

namespace fenceguard::demo {

// What the terminal can show.
struct TextStyle {
  bool colour = false;
  bool unicode = false;       // false: ASCII only
  std::size_t columns = 100;  // that no line of the text exceeds. REQUIRES: 60 or more
};

// What is going to happen. Several lines, each with its newline, as all of the following.
[[nodiscard]] std::string text_opening(const Scenario& scenario, const TextStyle& style);
// One run: a heading, a row per event, and the outcome.
[[nodiscard]] std::string text_run(const Scenario& scenario, const Run& run, const TextStyle& style);
// Both outcomes one below the other.
[[nodiscard]] std::string text_outcomes(const Scenario& scenario, const Run& without, const Run& with,
                                        const TextStyle& style);

// One line of JSON. Tokens and facts are strings.
[[nodiscard]] std::string json_report(const Scenario& scenario, const Run& without, const Run& with);

[[nodiscard]] boost::json::object json_of(const Run& run);

// '2. WITH THE GUARD' and '2. With the guard'.
[[nodiscard]] std::string heading_of(const Scenario& scenario, const Run& run, bool is_upper);
// The event in one sentence with its time.
[[nodiscard]] std::string sentence_of(const Event& event);
// What the actor does; a write with its token.
[[nodiscard]] std::string request_of(const Event& event);
[[nodiscard]] bool is_good(const Run& run);
// In lines of at most so many columns, broken at spaces where there are any.
[[nodiscard]] std::vector<std::string> wrap(std::string_view text, std::size_t columns);

}  // namespace fenceguard::demo
