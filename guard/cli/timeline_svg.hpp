#pragma once

// Picture: one run as an SVG sequence picture, for embedding into a page. Rows are laid out in order, one for
// each request and one for its answer, so that labels never meet; the column of times says how far apart they
// were. Colours come from the page's custom properties (--ink, --bad, ...).
//
// Pure; safe to use from any thread.

#include <string>
#include <string_view>

#include "guard/cli/demo_run.hpp"

namespace fenceguard::demo {

// An <svg> element. id is unique within the page and made of letters.
[[nodiscard]] std::string svg_picture(const Run& run, std::string_view id);

// Text with &, <, > and quotes replaced, for HTML and SVG.
[[nodiscard]] std::string escape_markup(std::string_view text);

}  // namespace fenceguard::demo
