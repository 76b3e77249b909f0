#pragma once

// Tale: both tellings of a product's own story (guard/demonstration.hpp) as a table for a terminal, as a page
// with a sequence picture and as JSON, all from what was noted and from nothing else.
//
// Pure; safe to use from any thread.

#include <string>
#include <vector>

#include "guard/cli/timeline.hpp"
#include "guard/demonstration.hpp"

namespace fenceguard::demo {

struct Telling {
  bool guarded = false;
  std::vector<TaleEvent> events;
  TaleEnd end;
};

// What is going to be told.
[[nodiscard]] std::string tale_opening(const Demonstration& story, const TextStyle& style);

// One telling: a heading, one row per event with a column for each lane, and its outcome.
[[nodiscard]] std::string tale_text(const Demonstration& story, const Telling& telling,
                                    const TextStyle& style);

// Both outcomes one below the other.
[[nodiscard]] std::string tale_outcomes(const Telling& round, const Telling& through, const TextStyle& style);

[[nodiscard]] std::string tale_page(PageForm form, const Demonstration& story, const Telling& round,
                                    const Telling& through);

// One line of JSON. Tokens and other facts are strings.
[[nodiscard]] std::string tale_report(const Demonstration& story, const Telling& round,
                                      const Telling& through);

// An <svg> element: a lifeline for each lane, a row for each event. id: unique in the page, made of letters.
[[nodiscard]] std::string tale_picture(const Demonstration& story, const Telling& telling,
                                       const std::string& id);

}  // namespace fenceguard::demo
