#pragma once

// Sequence diagram: one run as SVG, a lifeline for each lane and a row for each request and each answer, so
// that labels never meet. Positions are parts of the width across, and multiples of the font's size down: the
// same picture is as narrow as a phone or as wide as a slide.
//
// Pure; safe to use from any thread.

#include <string>
#include <string_view>

#include "demo/kit/scenario.hpp"

namespace fenceguard::demo {

struct Diagram {
  std::string body;   // the inside of an <svg> element: title, desc, shapes
  double height = 0;  // in em
};

// id: unique within the page and made of letters. top: where it begins, in em.
[[nodiscard]] Diagram sequence_diagram(const Scenario& scenario, const Run& run, const std::string& id,
                                       double top = 0);

// Text with &, <, > and quotes replaced, for HTML and SVG.
[[nodiscard]] std::string escape_markup(std::string_view text);

// Numbers of nine digits and more by their last four: 'token ..4711'.
[[nodiscard]] std::string shorten_numbers(std::string_view text);

}  // namespace fenceguard::demo
