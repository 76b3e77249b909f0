#pragma once

// Crowd: a thousand clients of a server which all take their time, to show that they cost others nothing.
//
// Not thread-safe.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/scale.hpp"
#include "tests/http/support.hpp"

namespace fenceguard::http {

inline const int crowd_size = test::scaled(1000);

// Deadlines that nobody of a crowd reaches while others are served.
[[nodiscard]] Limits crowd_limits();

// Lets this process, and those that it starts from now on, have as many files as may be. Throws
// std::runtime_error if that is less than ends: of connections, in one process.
void raise_file_limit(std::size_t ends);

class Crowd {
 public:
  // Connects them all; each sends begin.
  Crowd(const std::string& address, std::string_view begin);

  // Each sends more now and then, while ask() asks for something as another client, again and again: one time
  // in four it must be over within a second, and within patience always.
  void expect_others_answered(std::string_view more, const std::function<void()>& ask);

  // Nobody has been answered or cut.
  [[nodiscard]] bool is_quiet();
  // All of them have been sent something.
  [[nodiscard]] bool is_answered();

 private:
  void feed(std::string_view more);

  std::vector<RawClient> clients_;
};

}  // namespace fenceguard::http
