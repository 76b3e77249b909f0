#include "server/cli/terminal/output.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
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

struct Character {
  char32_t code = 0;
  std::string_view bytes;  // empty: the text does not begin with a whole character of UTF-8
};

Character first_of(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {first, text.substr(0, 1)};
  const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (length == 0 || length > text.size()) return {};
  char32_t code = first & (0xFFU >> (length + 1));
  for (const char c : text.substr(1, length - 1)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >> 6 != 0b10) return {};
    code = code << 6 | (byte & 0x3FU);
  }
  return {code, text.substr(0, length)};
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
    const auto character = first_of(text.substr(i));
    if (character.bytes.empty()) {
      result += fmt::format("\\x{{{:02X}}}", static_cast<unsigned char>(text[i]));
    } else if (is_hidden(character.code)) {
      result += fmt::format("\\u{{{:X}}}", static_cast<std::uint32_t>(character.code));
    } else {
      result += character.bytes;
    }
    i += std::max<std::size_t>(character.bytes.size(), 1);
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

void print_page(std::string_view name, const std::vector<ListedEntry>& entries, bool has_more, bool as_json) {
  boost::json::array all;
  std::string lines;
  std::string last;
  for (const auto& [report, rest] : entries) {
    const auto text = [&object = report.json()](std::string_view member) {
      return shown(object.at(member).get_string());
    };
    last = text("resource");
    lines += fmt::format("{} {}{}\n", last, text("token"), rest);
    all.push_back(report.json());
  }
  if (as_json) {
    const boost::json::object whole{{name, std::move(all)}, {"has_more", has_more}};
    return print_out(boost::json::serialize(whole) + "\n");
  }
  print_out(lines);
  if (has_more) complain(fmt::format("there are more: go on with --after '{}'", last));
}

std::string user_at_host() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  const auto* user = ::getpwuid(::getuid());  // NOLINT(concurrency-mt-unsafe): one thread
  return fmt::format("{}@{}", user != nullptr ? user->pw_name : std::to_string(::getuid()), host.data());
}

}  // namespace fenceguard::cli
