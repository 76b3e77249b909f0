#include "server/process_metrics.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace fenceguard {
namespace {

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::optional<double> resident_bytes() {
  std::ifstream file{"/proc/self/statm"};
  double pages_in_all = 0;
  double pages = 0;
  if (!(file >> pages_in_all >> pages)) return std::nullopt;
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

std::optional<double> open_descriptors() {
  std::error_code error;
  std::filesystem::directory_iterator entries{"/proc/self/fd", error};
  double count = -1;  // the one that counts is open, too
  for (; !error && entries != std::filesystem::directory_iterator{}; entries.increment(error)) ++count;
  if (error || count < 0) return std::nullopt;
  return count;
}

double descriptors_max() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<double>::infinity();
  return static_cast<double>(limit.rlim_cur);
}

// Of /proc/self/stat the 22nd member is the start, in ticks since boot; the second, a name in brackets, may
// hold blanks and brackets.
std::optional<double> read_start_time() {
  std::ifstream stat{"/proc/self/stat"};
  std::string text{std::istreambuf_iterator<char>{stat}, {}};
  std::istringstream rest{text.substr(std::min(text.size(), text.rfind(')') + 1))};
  std::string word;
  constexpr int start = 22;
  for (int member = 3; member <= start; ++member) rest >> word;
  std::ifstream system{"/proc/stat"};
  std::string name;
  while (system >> name && name != "btime") system.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  double boot = 0;
  if (!rest || !(system >> boot)) return std::nullopt;
  return boot + std::stod(word) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

void add(std::vector<prometheus::MetricFamily>& families, const char* name, const char* help,
         prometheus::MetricType type, std::optional<double> value) {
  if (!value) return;
  prometheus::ClientMetric metric;
  (type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = *value;
  families.push_back({name, help, type, {metric}});
}

}  // namespace

std::vector<prometheus::MetricFamily> process_metrics() {
  using enum prometheus::MetricType;
  // Read once: a clock that is set would move it, and it would look as if the guard had been started anew.
  static const auto start_time = read_start_time();
  std::vector<prometheus::MetricFamily> families;
  add(families, "process_cpu_seconds_total", "Processor time, of user and system, in seconds", Counter,
      cpu_seconds());
  add(families, "process_resident_memory_bytes", "Memory that is resident", Gauge, resident_bytes());
  add(families, "process_open_fds", "Open file descriptors", Gauge, open_descriptors());
  add(families, "process_max_fds", "How many file descriptors may be open", Gauge, descriptors_max());
  add(families, "process_start_time_seconds", "Start of the process, in seconds since 1970", Gauge,
      start_time);
  return families;
}

}  // namespace fenceguard
