#pragma once

// look_up(): what a host's name stands for. The system's resolver has no time limit that a caller could set,
// so it is asked on a thread that nothing waits for, neither its caller for longer than it likes nor the end
// of the process. For one name there is one such thread at a time.
//
// Thread-safe.

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace fenceguard {

struct Lookup {
  std::vector<std::string> addresses{};  // in numbers, the one to be tried first at the front
  std::string error{};                   // why there is none
};

// told is called once: within this call where host is a number itself or no thread can be made, else on
// another thread, at any time.
void look_up(const std::string& host, std::function<void(const Lookup&)> told);

// The answer, or an error where there is none within limit.
[[nodiscard]] Lookup look_up(const std::string& host, std::chrono::milliseconds limit);

}  // namespace fenceguard
