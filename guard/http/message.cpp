#include "guard/http/message.hpp"

#include <algorithm>

namespace fenceguard::http {
namespace {

// ASCII only, whatever the locale.
constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

bool same_name(std::string_view left, std::string_view right) noexcept {
  return left.size() == right.size() && std::equal(left.begin(), left.end(), right.begin(),
                                                   [](char a, char b) { return lower(a) == lower(b); });
}

}  // namespace

std::optional<std::string_view> Fields::single(std::string_view name) const {
  std::optional<std::string_view> found;
  for (const auto& [field, value] : fields_) {
    if (!same_name(field, name)) continue;
    if (found) return std::nullopt;
    found = value;
  }
  return found;
}

std::size_t Fields::count(std::string_view name) const {
  return static_cast<std::size_t>(std::count_if(
      fields_.begin(), fields_.end(), [&](const auto& field) { return same_name(field.first, name); }));
}

}  // namespace fenceguard::http
