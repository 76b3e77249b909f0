// history-check: judges histories in the format of docs/histories.md.
//
// Exit status: 0 nothing was found; 1 a violation, or a resource whose order could not be decided; 2 wrong
// usage, or a file that is no history.

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <string_view>

#include "tests/proof/checker/check.hpp"

namespace fenceguard::proof {
namespace {

constexpr auto usage =
    "usage: history-check [--rules-only] [--quiet] FILE...\n"
    "Judges histories of guarded resources (docs/histories.md). '-' is standard input.\n"
    "  --rules-only  no search for an order: for resources with more than 2,000 operations\n"
    "  --quiet       no line on success\n"
    "Exit status: 0 no violation, 1 a violation or undecided, 2 wrong usage or no history.\n";

void show(const History& history, const Violation& violation) {
  fmt::print("violation: {}{}{}: {}\n", violation.resource, violation.resource.empty() ? "" : ": ",
             violation.rule, violation.sentence);
  if (violation.until == never) return;
  for (const auto& resource : history.resources) {
    if (resource.name == violation.resource)
      fmt::print("{}", table_of(prefix_of(resource, violation.until), history.texts));
  }
}

// True if there is no violation.
bool judge(const std::string& name, const CheckOptions& options, bool is_quiet) {
  std::ifstream file;
  if (name != "-") {
    file.open(name, std::ios::binary);
    if (!file) throw std::runtime_error{"cannot be read"};
  }
  const History history = read_history(name == "-" ? std::cin : file);
  const auto began = std::chrono::steady_clock::now();
  const auto violations = check(history, options);
  for (const auto& violation : violations) show(history, violation);
  std::size_t operations = 0, unknown = 0;
  for (const auto& resource : history.resources) {
    operations += resource.operations.size();
    for (const auto& operation : resource.operations) unknown += operation.answer == Answer::unknown;
  }
  if (operations == 0) throw std::runtime_error{"holds no operation, so it proves nothing"};
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (violations.empty() && !is_quiet) {
    fmt::print(
        "{}: no violation in {} operations on {} resources ({} with an unknown outcome), judged in {:.3f} "
        "s\n",
        name, operations, history.resources.size(), unknown, took.count());
  }
  return violations.empty();
}

}  // namespace
}  // namespace fenceguard::proof

int main(int argc, char** argv) {
  using namespace fenceguard::proof;
  CheckOptions options;
  bool is_quiet = false, is_clean = true;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--help") {
      fmt::print("{}", usage);
      return 0;
    }
    if (word == "--rules-only") {
      options.searches = false;
    } else if (word == "--quiet") {
      is_quiet = true;
    } else if (word.starts_with("--") || word.empty()) {
      fmt::print(stderr, "history-check: '{}' is not known\n{}", word, usage);
      return 2;
    } else {
      names.emplace_back(word);
    }
  }
  if (names.empty()) {
    fmt::print(stderr, "{}", usage);
    return 2;
  }
  for (const auto& name : names) {
    try {
      is_clean = judge(name, options, is_quiet) && is_clean;
    } catch (const std::exception& error) {
      fmt::print(stderr, "history-check: {}: {}\n", name, error.what());
      return 2;
    }
  }
  return is_clean ? 0 : 1;
}
