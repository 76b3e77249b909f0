#include "bench/measure.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
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

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Sides alternate(int rounds, const std::function<double()>& ours, const std::function<double()>& other) {
  std::vector<double> our_values;
  std::vector<double> other_values;
  for (int i = 0; i < rounds; ++i) {
    our_values.push_back(ours());
    other_values.push_back(other());
  }
  return {median(our_values), median(other_values)};
}

void print(const Line& line) {
  fmt::print("{}: {} (ours {}, other {}), target {}\n", line.name, line.ratio, line.ours, line.other,
             line.target);
  std::fflush(stdout);
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
