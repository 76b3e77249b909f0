#pragma once

// Page: both tellings of a story as one self-contained HTML page, or as one SVG picture: no script, nothing
// loaded from elsewhere, light and dark.
//
// Pure; safe to use from any thread.

#include <string>
#include <vector>

namespace fenceguard::demo {

// One telling. Plain text, but the picture, which is an <svg> element.
struct PageSection {
  std::string heading;
  std::string explanation;
  std::string outcome;
  bool is_good = false;  // the outcome's colour
  std::string picture;
  std::vector<std::string> steps;  // the same in words
};

[[nodiscard]] std::string html_page(const std::string& title, const std::string& opening,
                                    const PageSection& round, const PageSection& through);

// Both pictures below each other, without the words.
[[nodiscard]] std::string svg_page(const std::string& title, const std::string& opening,
                                   const PageSection& round, const PageSection& through);

// One of the two.
using PageForm = std::string (*)(const std::string& title, const std::string& opening,
                                 const PageSection& round, const PageSection& through);

}  // namespace fenceguard::demo
