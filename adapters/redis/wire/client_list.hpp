#pragma once

// What a server says of its connections (CLIENT LIST, CLIENT INFO) and of itself (INFO), and how it is told
// to end a connection.
//
// Thread-safe.

#include <algorithm>
#include <string_view>

namespace fenceguard::redis {

// The value of 'field=' in a line of CLIENT LIST, whose values hold no blanks; empty: there is none.
[[nodiscard]] inline std::string_view client_field(std::string_view line, std::string_view field) {
  while (!line.empty()) {
    const auto end = std::min(line.find_first_of(" \r\n"), line.size());
    const auto part = line.substr(0, end);
    if (part.starts_with(field) && part.substr(field.size()).starts_with('='))
      return part.substr(field.size() + 1);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return {};
}

// The value of a line 'field:value' of INFO; empty: there is none.
[[nodiscard]] inline std::string_view info_field(std::string_view info, std::string_view field) {
  while (!info.empty()) {
    const auto line = info.substr(0, std::min(info.find_first_of("\r\n"), info.size()));
    if (line.starts_with(field) && line.substr(field.size()).starts_with(':'))
      return line.substr(field.size() + 1);
    info.remove_prefix(std::min(line.size() + 1, info.size()));
  }
  return {};
}

}  // namespace fenceguard::redis
