#include "bench/measure.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace fenceguard::bench {

Settings read_settings(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag{argv[i]};
    if (flag == "--quick") {
      settings.quick = true;
    } else if (flag == "--folder" && i + 1 < argc) {
      settings.folder = argv[++i];
    } else if (flag == "--only" && i + 1 < argc) {
      settings.only = argv[++i];
    } else {
      fmt::print(stderr, "usage: {} [--quick] [--folder PATH] [--only TEXT]\n", argv[0]);
      std::exit(2);
    }
  }
  return settings;
}

namespace {

using Pids = std::vector<pid_t>;

// The processes that this one started and they started, while they live.
void add_children(pid_t parent, Pids& found) {
  for (const auto& task : std::filesystem::directory_iterator{fmt::format("/proc/{}/task", parent)}) {
    std::ifstream children{task.path() / "children"};
    for (pid_t child = 0; children >> child;) {
      found.push_back(child);
      try {
        add_children(child, found);
      } catch (const std::filesystem::filesystem_error&) {
        // It has ended.
      }
    }
  }
}

Pids descendants() {
  Pids found;
  add_children(getpid(), found);
  return found;
}

double seconds_of(pid_t pid) {
  std::ifstream file{fmt::format("/proc/{}/stat", pid)};
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  const auto end = text.rfind(')');
  if (end == text.npos) return 0;
  std::istringstream fields{text.substr(end + 2)};
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double own_seconds(int whose) {
  rusage usage{};
  getrusage(whose, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Servers to the first half of the processors, the program to the rest.
void part_processors(const Pids& servers) {
  const long count = sysconf(_SC_NPROCESSORS_ONLN);
  if (servers.empty() || count < 2) return;
  cpu_set_t first, rest;
  CPU_ZERO(&first);
  CPU_ZERO(&rest);
  for (long i = 0; i < count; ++i) CPU_SET(static_cast<std::size_t>(i), i < count / 2 ? &first : &rest);
  const auto pin_all_threads = [](pid_t pid, const cpu_set_t& set) {
    for (const auto& task : std::filesystem::directory_iterator{fmt::format("/proc/{}/task", pid)})
      sched_setaffinity(std::stoi(task.path().filename()), sizeof set, &set);
  };
  for (const auto pid : servers) pin_all_threads(pid, first);
  pin_all_threads(getpid(), rest);
}

// One side's batches.
class Batches {
 public:
  Batches(const Pids& servers, const std::function<double()>& run) : servers_{servers}, run_{run} {}

  double run() {
    const double program = program_seconds();
    const double servers = server_seconds();
    const Stopwatch watch;
    rates_.push_back(run_());
    const double done = rates_.back() * watch.seconds();
    program_us_.push_back((program_seconds() - program) * 1e6 / done);
    servers_us_.push_back((server_seconds() - servers) * 1e6 / done);
    return rates_.back();
  }
  [[nodiscard]] double rate() const { return median(rates_); }
  [[nodiscard]] Cost cost() const { return {median(program_us_), median(servers_us_)}; }

 private:
  static double program_seconds() { return own_seconds(RUSAGE_SELF) + own_seconds(RUSAGE_CHILDREN); }
  [[nodiscard]] double server_seconds() const {
    double sum = 0;
    for (const pid_t pid : servers_) sum += seconds_of(pid);
    return sum;
  }

  const Pids& servers_;
  const std::function<double()>& run_;
  std::vector<double> rates_, program_us_, servers_us_;
};

double load_of_machine() {
  double load = 0;
  std::ifstream{"/proc/loadavg"} >> load;
  return load;
}

}  // namespace

double median(std::vector<double> values) {
  return quartiles(std::move(values)).median;
}

Quartiles quartiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) {
    const double place = part * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const auto above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  return {at(0.25), at(0.5), at(0.75)};
}

Sides alternate(int rounds, const std::function<double()>& ours, const std::function<double()>& other) {
  const auto servers = descendants();
  part_processors(servers);
  Batches our_batches{servers, ours};
  Batches other_batches{servers, other};
  std::vector<double> ratios;
  for (int i = 0; i < rounds; ++i) {
    const double our_rate = our_batches.run();
    ratios.push_back(our_rate / other_batches.run());
  }
  return {our_batches.rate(), other_batches.rate(), quartiles(ratios), our_batches.cost(),
          other_batches.cost()};
}

void print(const Line& line) {
  fmt::print("{}: {} (ours {}, other {}), target {}\n", line.name, line.ratio, line.ours, line.other,
             line.target);
  std::fflush(stdout);
  const char* path = std::getenv("FENCEGUARD_FIGURES");
  if (path == nullptr) return;
  boost::json::object figure{{"name", line.name},   {"ratio", line.ratio},   {"ours", line.ours},
                             {"other", line.other}, {"target", line.target}, {"load", load_of_machine()}};
  if (line.sides) {
    const auto& sides = *line.sides;
    figure["quartiles"] = {sides.ratio.low, sides.ratio.high};
    figure["our_us"] = {sides.our_cost.program_us, sides.our_cost.servers_us};
    figure["other_us"] = {sides.other_cost.program_us, sides.other_cost.servers_us};
  }
  std::ofstream{path, std::ios::app} << boost::json::serialize(figure) << '\n';
}

TemporaryFolder::TemporaryFolder(const std::string& parent) : path_{parent + "/fenceguard-bench-XXXXXX"} {
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make a folder in " + parent);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string resource_name(std::uint64_t number) {
  std::string name = "accounts/00000000000";
  for (auto digit = name.rbegin(); number > 0; number /= 10) *digit++ = static_cast<char>('0' + number % 10);
  return name;
}

std::string holder_id(std::uint64_t number) {
  static constexpr char digits[] = "0123456789abcdef";
  // Two rounds of a multiplicative hash: digits that look random and are the same in every run.
  const std::uint64_t high = (number + 1) * 0x9E3779B97F4A7C15ULL;
  const std::uint64_t low = (high ^ (high >> 29)) * 0xBF58476D1CE4E5B9ULL;
  std::string id(32, '0');
  for (unsigned i = 0; i < 16; ++i) {
    id[i] = digits[high >> (4 * i) & 15];
    id[16 + i] = digits[low >> (4 * i) & 15];
  }
  return id;
}

std::size_t resident_bytes() {
  std::size_t total = 0;
  std::size_t resident = 0;
  std::ifstream{"/proc/self/statm"} >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace fenceguard::bench
