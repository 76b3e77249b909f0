#pragma once

// Names of header fields, compared in two ways. A field that is kept out is kept out under every name that a
// server behind a proxy could take for it: CGI (RFC 3875) and what is built like it make environment
// variables of names, and to one of them or another every character but letters and digits is an underscore.
// A field that means something here has its one name, without regard to case. Hosts, schemes and values are
// no names: for them the first comparison would take one for another.
//
// Pure; safe to use from any thread.

#include <string_view>

#include "guard/support/text.hpp"

namespace fenceguard::proxy {

[[nodiscard]] constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

// As the server that makes most names alike reads it.
[[nodiscard]] constexpr char folded(char c) noexcept {
  const char letter = lower(c);
  return (letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9') ? letter : '-';
}

// For a refusal: whether name, somewhere behind us, could be read as known.
[[nodiscard]] constexpr bool could_pass_for(std::string_view name, std::string_view known) noexcept {
  if (name.size() != known.size()) return false;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] != known[i] && folded(name[i]) != folded(known[i])) return false;
  }
  return true;
}

[[nodiscard]] constexpr bool could_begin_with(std::string_view name, std::string_view prefix) noexcept {
  return name.size() >= prefix.size() && could_pass_for(name.substr(0, prefix.size()), prefix);
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
