// history-runs: simulated histories by the million, each through the checker, in pieces that can be resumed.
//
//   history-runs [--first SEED] [--count N] [--seconds S] [--progress FILE] [--keep FOLDER]
//
// Goes on where FILE says that an earlier run of the same first seed and count ended, and stops after S
// seconds. Exit status: 0 all histories are done; 1 a violation, whose history is kept in FOLDER; 2 wrong
// usage; 3 stopped by the time, run it again.

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/proof/checker/check.hpp"
#include "tests/proof/simulation/simulation.hpp"

namespace fenceguard::proof {
namespace {

struct Options {
  std::uint64_t first = 1;
  std::int64_t count = 1'000'000;
  double seconds = 540;
  std::string progress;
  std::string keep = ".";
};

constexpr std::int64_t Counts::*members[] = {
    &Counts::histories,     &Counts::operations,  &Counts::admitted,      &Counts::refused,
    &Counts::unknown,       &Counts::late_writes, &Counts::takeovers,     &Counts::client_crashes,
    &Counts::guard_crashes, &Counts::states_lost, &Counts::source_faults, &Counts::clock_jumps,
    &Counts::duplicates,    &Counts::conflicts,   &Counts::implausible,   &Counts::runs_done,
    &Counts::raises};
constexpr const char* names[] = {
    "histories",     "operations",  "admitted",       "stale",         "unknown outcomes",
    "late writes",   "take-overs",  "client crashes", "guard crashes", "states lost",
    "source faults", "clock jumps", "duplicates",     "conflicts",     "implausible",
    "runs done",     "raises"};

Counts resume(const Options& options) {
  Counts counts;
  std::ifstream file{options.progress};
  std::uint64_t first = 0;
  if (!(file >> first) || first != options.first) return counts;
  for (const auto member : members) file >> counts.*member;
  return file ? counts : Counts{};
}

void keep_progress(const Options& options, const Counts& counts) {
  if (options.progress.empty()) return;
  std::ofstream file{options.progress, std::ios::trunc};
  file << options.first;
  for (const auto member : members) file << ' ' << counts.*member;
  file << '\n';
}

int run(const Options& options) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>{Clock::now() - began}.count(); };
  Counts counts = resume(options);
  const std::int64_t resumed = counts.histories;
  while (counts.histories < options.count && elapsed() < options.seconds) {
    const std::uint64_t seed = options.first + static_cast<std::uint64_t>(counts.histories);
    const Simulated simulated = simulate(seed);
    counts.add(simulated.counts);
    auto violations = check(simulated.history);
    if (!simulated.source_violation.empty())
      violations.push_back({"-", "source", simulated.source_violation});
    if (violations.empty()) continue;
    const std::string name = fmt::format("{}/history-{}.jsonl", options.keep, seed);
    std::ofstream{name} << text_of(simulated.history);
    fmt::print("seed {}: {}: {}: {}\nkept in {}\n", seed, violations[0].resource, violations[0].rule,
               violations[0].sentence, name);
    return 1;
  }
  keep_progress(options, counts);
  for (std::size_t i = 0; i < std::size(members); ++i)
    fmt::print("{:>14} {}\n", counts.*members[i], names[i]);
  fmt::print("seeds from {}, no violation; {:.0f} histories/s\n", options.first,
             static_cast<double>(counts.histories - resumed) / elapsed());
  return counts.histories < options.count ? 3 : 0;
}

}  // namespace
}  // namespace fenceguard::proof

int main(int argc, char** argv) {
  fenceguard::proof::Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (value == nullptr) return 2;
    if (name == "--first") {
      options.first = std::strtoull(value, nullptr, 10);
    } else if (name == "--count") {
      options.count = std::atoll(value);
    } else if (name == "--seconds") {
      options.seconds = std::atof(value);
    } else if (name == "--progress") {
      options.progress = value;
    } else if (name == "--keep") {
      options.keep = value;
    } else {
      fmt::print(stderr, "history-runs: '{}' is not known\n", name);
      return 2;
    }
  }
  return fenceguard::proof::run(options);
}
