#include "tests/proof/checker/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "tests/proof/checker/rules.hpp"
#include "tests/proof/checker/search.hpp"

namespace fenceguard::proof {
namespace {

std::optional<Violation> judge(const ResourceHistory& resource, const Texts& texts,
                               const CheckOptions& options) {
  if (auto breach = broken_rule(resource, texts))
    return Violation{resource.name, std::move(breach->rule), std::move(breach->sentence)};
  if (!options.searches) return std::nullopt;
  const bool is_short = resource.operations.size() <= options.search_operations_max;
  const Found found = is_short ? find_order(resource.operations, options.steps_max) : Found::undecided;
  if (found == Found::order) return std::nullopt;
  if (found == Found::none)
    return Violation{resource.name, "no-order", "no order of the operations gives every client its answer"};
  return Violation{resource.name, "undecided",
                   is_short ? fmt::format("no order was found within {} steps", options.steps_max)
                            : fmt::format("it has more than {} operations: leave a resource earlier, or have "
                                          "it checked with --rules-only",
                                          options.search_operations_max)};
}

}  // namespace

ResourceHistory prefix_of(const ResourceHistory& resource, std::int64_t until) {
  ResourceHistory prefix{resource.name, {}, {}, resource.has_log};
  std::unordered_set<TextId> values, later;
  for (const Operation& operation : resource.operations) {
    if (operation.called > until) {
      if (operation.kind == Kind::write) later.insert(operation.value);
      continue;
    }
    prefix.operations.push_back(operation);
    if (operation.returned <= until) continue;
    Operation& open = prefix.operations.back();
    open.answer = Answer::unknown;
    open.returned = never;
    open.highest = -1;
    if (open.kind == Kind::read) open.value = 0;
  }
  for (const Applied& applied : resource.log) {
    if (!later.contains(applied.value)) prefix.log.push_back(applied);
  }
  return prefix;
}

std::optional<Violation> check(const ResourceHistory& resource, const Texts& texts,
                               const CheckOptions& options) {
  auto violation = judge(resource, texts, options);
  if (!violation || violation->rule == "undecided") return violation;
  // A violation stays one in every longer prefix, so the shortest is found by halving.
  std::vector<std::int64_t> ends;
  for (const Operation& operation : resource.operations) {
    ends.push_back(operation.called);
    if (operation.returned != never) ends.push_back(operation.returned);
  }
  std::ranges::sort(ends);
  std::size_t low = 0, high = ends.size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    auto shorter = judge(prefix_of(resource, ends[middle]), texts, options);
    if (shorter && shorter->rule != "undecided") {
      violation = std::move(shorter);
      violation->until = ends[middle];
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return violation;
}

std::vector<Violation> check(const History& history, const CheckOptions& options) {
  std::vector<Violation> found;
  for (const auto& resource : history.resources) {
    if (auto violation = check(resource, history.texts, options)) found.push_back(std::move(*violation));
  }
  if (auto breach = broken_bound(history))
    found.push_back({"", std::move(breach->rule), std::move(breach->sentence)});
  return found;
}

std::string table_of(const ResourceHistory& prefix, const Texts& texts, std::size_t rows_max) {
  std::string out = fmt::format("resource {}\n", prefix.name);
  const auto& operations = prefix.operations;
  const std::size_t first = operations.size() > rows_max ? operations.size() - rows_max : 0;
  if (first > 0) out += fmt::format("({} earlier operations are not shown)\n", first);
  constexpr auto row = "{:>7}  {:<7} {:>19} {:<12} {:>4} {:<12} {:>15} {:>15}  {:<11} {:>19}\n";
  out += fmt::format(row, "process", "op", "token", "holder", "seq", "value", "called ns", "returned ns",
                     "verdict", "highest");
  const std::int64_t start = operations.empty() ? 0 : operations.front().called;
  const auto number = [](std::int64_t value, std::int64_t none) {
    return value == none ? std::string{"-"} : std::to_string(value);
  };
  for (std::size_t i = first; i < operations.size(); ++i) {
    const Operation& operation = operations[i];
    const std::string& value = texts.text(operation.value);
    const bool is_open = operation.returned == never;
    out += fmt::format(row, operation.process, name_of(operation.kind), number(operation.token, 0),
                       texts.text(operation.holder), number(operation.sequence, -1),
                       operation.value == 0 ? "-" : value, operation.called - start,
                       is_open ? "-" : std::to_string(operation.returned - start),
                       is_open ? "(open)" : name_of(operation.answer), number(operation.highest, -1));
  }
  if (!prefix.has_log) return out;
  const std::size_t log_first = prefix.log.size() > rows_max ? prefix.log.size() - rows_max : 0;
  out += log_first > 0 ? fmt::format("the storage's log (without the first {}):", log_first)
                       : std::string{"the storage's log:"};
  for (std::size_t i = log_first; i < prefix.log.size(); ++i)
    fmt::format_to(std::back_inserter(out), " {}@{}", texts.text(prefix.log[i].value), prefix.log[i].token);
  return out + "\n";
}

}  // namespace fenceguard::proof
