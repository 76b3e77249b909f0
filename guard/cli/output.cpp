#include "guard/cli/output.hpp"

#include <fmt/format.h>

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

void complain(std::string_view sentence) {
  // What a client library tells of several hosts has several lines.
  std::string line{sentence};
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  fmt::print(stderr, "fenceguard: {}\n", line);
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
