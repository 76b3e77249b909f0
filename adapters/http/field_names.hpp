#pragma once

// Names of header fields, compared as the many servers behind a proxy do: without regard to case, and with
// '_' for '-', because what is passed on as an environment variable (RFC 3875) cannot tell the two apart, and
// a field that was taken out under one spelling must not come in under the other.
//
// Pure; safe to use from any thread.

#include <string_view>

namespace fenceguard::proxy {

[[nodiscard]] constexpr char folded(char c) noexcept {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c + ('a' - 'A'));
  return c == '_' ? '-' : c;
}

[[nodiscard]] constexpr bool is_same_name(std::string_view left, std::string_view right) noexcept {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] != right[i] && folded(left[i]) != folded(right[i])) return false;
  }
  return true;
}

// Without regard to case only: for fields that are obeyed here, as the framing of an answer is.
[[nodiscard]] constexpr bool is_exactly(std::string_view name, std::string_view known) noexcept {
  return is_same_name(name, known) && name.find('_') == std::string_view::npos;
}

[[nodiscard]] constexpr bool begins_with_name(std::string_view name, std::string_view prefix) noexcept {
  return name.size() >= prefix.size() && is_same_name(name.substr(0, prefix.size()), prefix);
}

// A comma-separated list, element by element, without the blanks around each.
template <class Visit>
constexpr void for_each_element(std::string_view list, Visit visit) {
  while (!list.empty()) {
    auto element = list.substr(0, list.find(','));
    list.remove_prefix(element.size() < list.size() ? element.size() + 1 : element.size());
    while (!element.empty() && (element.front() == ' ' || element.front() == '\t')) element.remove_prefix(1);
    while (!element.empty() && (element.back() == ' ' || element.back() == '\t')) element.remove_suffix(1);
    if (!element.empty()) visit(element);
  }
}

}  // namespace fenceguard::proxy
