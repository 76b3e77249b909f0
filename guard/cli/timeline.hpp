#pragma once

// Timeline: a run of the demonstration as a table for a terminal and as a page with a sequence picture. For
// people who have read nothing else: plain words, every token shown, the pause and the refusal easy to see.
//
// Pure: the same runs give the same text. Safe to use from any thread.

#include <string>

#include "guard/cli/demo_run.hpp"
#include "guard/cli/timeline_page.hpp"

namespace fenceguard::demo {

// What the terminal can show.
struct TextStyle {
  bool colour = false;
  bool unicode = false;       // false: ASCII only
  std::size_t columns = 100;  // that no line of the text exceeds. REQUIRES: 60 or more
};

// What is going to be told: before the first run. Several lines, each with its newline, as all of the
// following.
[[nodiscard]] std::string text_opening(const Run& run, const TextStyle& style);

// One run: a heading and one row per event, with a column for the time, for each client, for the lock and for
// the storage.
[[nodiscard]] std::string text_timeline(const Run& run, const TextStyle& style);

// Both balances side by side.
[[nodiscard]] std::string text_balances(const Run& round, const Run& through, const TextStyle& style);

// Both runs as a page of that form.
[[nodiscard]] std::string timeline_page(PageForm form, const Run& round, const Run& through);

}  // namespace fenceguard::demo
