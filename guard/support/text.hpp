#pragma once

// What a text consists of. Pure.

#include <algorithm>
#include <string_view>

namespace fenceguard {

// From '!' to '~': no space, no control character, nothing beyond ASCII.
[[nodiscard]] constexpr bool is_visible_ascii(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

// ASCII only, whatever the locale.
[[nodiscard]] constexpr bool equals_ignoring_case(std::string_view a, std::string_view b) noexcept {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; };
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [&](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace fenceguard
