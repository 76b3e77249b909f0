// history-speed [HISTORIES [OPERATIONS [CLIENTS [UNKNOWN_PERCENT]]]]: how many random histories the checker
// judges per second on one core; the making of them is not counted.

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <sstream>

#include "tests/proof/checker/check.hpp"
#include "tests/proof/checker/random_history.hpp"

int main(int argc, char** argv) {
  using namespace fenceguard::proof;
  using Clock = std::chrono::steady_clock;
  const auto argument = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const int count = argument(1, 20'000);
  const HistoryShape shape{argument(2, 200), argument(3, 8), argument(4, 5), true};
  const CheckOptions whole{};
  CheckOptions rules;
  rules.searches = false;
  std::chrono::duration<double> judged{}, ruled{}, read{};
  std::size_t violations = 0, bytes = 0;
  for (int seed = 0; seed < count; ++seed) {
    const History history = random_history(static_cast<std::uint64_t>(seed), shape);
    auto began = Clock::now();
    violations += check(history, whole).size();
    judged += Clock::now() - began;
    began = Clock::now();
    violations += check(history, rules).size();
    ruled += Clock::now() - began;
    if (seed % 10 != 0) continue;
    std::istringstream text{text_of(history)};
    bytes += text.str().size();
    began = Clock::now();
    violations += read_history(text).resources.size() == 1 ? 0 : 1;
    read += Clock::now() - began;
  }
  fmt::print(
      "{} histories of {} operations by {} clients, {} % unknown: {:.0f}/s rules and search, {:.0f}/s "
      "rules alone, {:.0f}/s read ({:.0f} MB/s); {} violations\n",
      count, shape.operations, shape.clients, shape.unknown_percent, count / judged.count(),
      count / ruled.count(), count / 10.0 / read.count(), static_cast<double>(bytes) / 1e6 / read.count(),
      violations);
  return violations == 0 ? 0 : 1;
}
