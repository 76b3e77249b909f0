#pragma once

// Page: both runs of a scenario as one self-contained HTML page, or as one SVG picture: nothing is loaded
// from elsewhere, light and dark. The page is that of /ui with the recorded runs in it, as narrow as a phone;
// PAGE#round and PAGE#through show one panel alone, as large as the window. Each panel of the picture has
// 1920 x 1080 units.
//
// Pure; safe to use from any thread.

#include <string>

#include "demo/kit/scenario.hpp"

namespace fenceguard::demo {

[[nodiscard]] std::string html_page(const Scenario& scenario, const Run& without, const Run& with);
// Both panels below each other, without the words.
[[nodiscard]] std::string svg_page(const Scenario& scenario, const Run& without, const Run& with);

}  // namespace fenceguard::demo
