#include "server/cli/output.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cstdio>

namespace fenceguard::cli {

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
