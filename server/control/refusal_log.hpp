#pragma once

// RefusalLog: a structured line for a refusal, at most one a second per resource, however many there are;
// what was left out is counted in the next line. Admissions are written at debug only. Never a holder's name.
// client: whose request it was (http::Request::client).
//
// Memory is fixed: resources share a table of slots by their hash, so two of them may share one allowance.
//
// Thread safety: all calls may be made from any thread.

#include <array>
#include <cstdint>
#include <iomanip>
#include <mutex>
#include <string_view>

#include "guard/error.hpp"
#include "guard/judge.hpp"
#include "guard/support/clock.hpp"

namespace fenceguard {

class RefusalLog {
 public:
  // A ruling: a refusal is a line at info, a conflict at warning, an admission at debug.
  void ruled(std::string_view operation, const Claim& claim, const Ruling& ruling, std::string_view client);

  // A claim without its signature, or with a wrong one; at warning.
  void not_signed(std::string_view operation, const Claim& claim, std::string_view client);

  // A claim that was not judged because of a fault.
  void failed(std::string_view operation, const Resource& resource, const Fault& fault,
              std::string_view client);

  // No claim on the resource is admitted for a while; at warning.
  void quarantined(std::string_view resource, const Fault& why);

  // Whether a line about resource may be written now, and how many were left out since the last.
  struct Allowance {
    bool granted = false;
    std::uint64_t suppressed = 0;
  };
  [[nodiscard]] Allowance take(std::string_view resource, BootClock::time_point now);

 private:
  struct Slot {
    std::int64_t second = -1;  // of the last line
    std::uint64_t suppressed = 0;
  };

  std::mutex mutex_;
  std::array<Slot, 1024> slots_{};
};

// text in quotes, with quotes and backslashes escaped, for a key=value line. Call it as fenceguard::quoted():
// by its bare name a std::string finds std::quoted(), where <iomanip> is included. Here it is, so that a bare
// name compiles nowhere, and not only with some version of the libraries.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace fenceguard
