#include "server/cli/output.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <utility>

namespace fenceguard::cli {
namespace {

// Controls, marks of direction, and what has no width or ends a line.
bool is_hidden(char32_t code) noexcept {
  constexpr std::array<std::pair<char32_t, char32_t>, 10> ranges{{{0, 0x1F},
                                                                  {0x7F, 0x9F},
                                                                  {0xAD, 0xAD},
                                                                  {0x61C, 0x61C},
                                                                  {0x180E, 0x180E},
                                                                  {0x200B, 0x200F},
                                                                  {0x2028, 0x202E},
                                                                  {0x2060, 0x206F},
                                                                  {0xFEFF, 0xFEFF},
                                                                  {0xE0000, 0xE0FFF}}};
  return std::ranges::any_of(
      ranges, [code](const auto& range) { return range.first <= code && code <= range.second; });
}

}  // namespace

int exit_status(FaultKind kind) noexcept {
  switch (kind) {
    case FaultKind::invalid_input:
      return exit_usage;
    case FaultKind::implausible:
      return exit_refused;
    case FaultKind::unavailable:
      return exit_fault;
    case FaultKind::unknown:
      break;
  }
  return exit_unknown;
}

void complain(std::string_view sentence) noexcept {
  try {
    // What a client library tells of several hosts has several lines.
    auto line = fmt::format("fenceguard: {}", sentence);
    std::ranges::replace_if(
        line, [](char c) { return c == '\n' || c == '\t'; }, ' ');
    line += '\n';
    std::fputs(line.c_str(), stderr);
  } catch (...) {
    // Out of memory: there is no sentence.
  }
}

std::size_t output_columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return columns_max;
  return std::clamp<std::size_t>(size.ws_col, columns_min, columns_max);
}

void print_out(std::string_view text) {
  const bool is_written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!is_written) throw OutcomeUnknown("the answer could not be written to stdout");
}

std::string shown(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const std::size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    const auto character = text.substr(i, length);
    char32_t code = length == 1 ? first : first & (0xFFU >> (length + 1));
    for (const char byte : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(byte) & 0x3FU);
    if (is_hidden(code)) {
      result += fmt::format("\\u{{{:X}}}", static_cast<std::uint32_t>(code));
    } else {
      result += character;
    }
    i += length;
  }
  return result;
}

Report& Report::add(std::string_view name, std::string_view value) {
  object_[name] = value;
  return *this;
}

Report& Report::add_number(std::string_view name, std::int64_t value) {
  object_[name] = value;
  return *this;
}

Report& Report::add_token(std::string_view name, std::int64_t value) {
  if (value > 0) add(name, std::to_string(value));
  return *this;
}

Report& Report::add_flag(std::string_view name, bool value) {
  object_[name] = value;
  return *this;
}

void Report::print(bool as_json) const {
  if (as_json) {
    print_out(boost::json::serialize(object_) + "\n");
    return;
  }
  std::string lines;
  for (const auto& [name, value] : object_) {
    const std::string text =
        value.is_string() ? std::string{value.get_string()} : boost::json::serialize(value);
    lines += fmt::format("{} {}\n", std::string_view{name}, text);
  }
  print_out(lines);
}

}  // namespace fenceguard::cli
