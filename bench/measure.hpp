#pragma once

// What the benchmarks share: their flags, batches that alternate between the two sides, and the one line that
// each target ends in. Both sides are always measured in the same run, because only their ratio means
// anything on another machine.
//
// Where servers run beside the program, they and the program have processors of their own. Each line is also
// written to the file that FENCEGUARD_FIGURES names, as JSON, with the load of the machine (figures.py makes
// the tables of it).

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fenceguard::bench {

struct Settings {
  bool quick = false;        // --quick: shorter rounds, for a look
  std::string folder = ".";  // --folder PATH: where files are made; a real disk, not a tmpfs
  std::string only;          // --only TEXT: the lines whose name contains TEXT

  [[nodiscard]] bool wants(const std::string& name) const { return name.find(only) != std::string::npos; }
};

// Reads the flags; ends the program with a line of help and status 2 at anything else.
[[nodiscard]] Settings read_settings(int argc, char** argv);

[[nodiscard]] double median(std::vector<double> values);

struct Quartiles {
  double low = 0;
  double median = 0;
  double high = 0;
};
[[nodiscard]] Quartiles quartiles(std::vector<double> values);

// Processor time of one operation in microseconds: of this program and what it ran, and of the servers beside
// it.
struct Cost {
  double program_us = 0;
  double servers_us = 0;
};

// The medians of two sides, and the quartiles of the ratios of batches that were run side by side.
struct Sides {
  double ours = 0;
  double other = 0;
  Quartiles ratio;
  Cost our_cost;
  Cost other_cost;
};

// Runs ours, other, ours, other, …: whatever else the machine does meets both. Each answers operations per
// second, and is little else but those.
[[nodiscard]] Sides alternate(int rounds, const std::function<double()>& ours,
                              const std::function<double()>& other);

// Prints 'name: ratio (ours …, other …), target …' on stdout.
struct Line {
  std::string name;
  std::string ratio;
  std::string ours;
  std::string other;
  std::string target;
  std::optional<Sides> sides{};
};
void print(const Line& line);

// Seconds since start.
class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A folder that is removed, with all that is in it, at the end.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& parent);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A resource name of 20 bytes and a holder of 32, as a random one has.
[[nodiscard]] std::string resource_name(std::uint64_t number);
[[nodiscard]] std::string holder_id(std::uint64_t number);

// Resident memory of this process in bytes.
[[nodiscard]] std::size_t resident_bytes();

}  // namespace fenceguard::bench
