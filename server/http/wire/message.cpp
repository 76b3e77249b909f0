#include "server/http/wire/message.hpp"

#include <algorithm>

#include "guard/support/text.hpp"

namespace fenceguard::http {

std::optional<std::string_view> Fields::single(std::string_view name) const {
  std::optional<std::string_view> found;
  for (const auto& [field, value] : fields_) {
    if (!equals_ignoring_case(field, name)) continue;
    if (found) return std::nullopt;
    found = value;
  }
  return found;
}

std::size_t Fields::count(std::string_view name) const {
  return static_cast<std::size_t>(std::count_if(fields_.begin(), fields_.end(), [&](const auto& field) {
    return equals_ignoring_case(field.first, name);
  }));
}

}  // namespace fenceguard::http
