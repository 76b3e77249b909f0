#pragma once

// --hold-for: the program for which 'serve --hold' holds, by the id of its process, or as a command that is
// run in a fresh start under each tenure and ended when it is lost, before another holder may be let in, also
// where this process stands still: see Supervisor.

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/leases/tenure_program.hpp"

namespace fenceguard::cli {

class ProgramToHoldFor : public TenureProgram {
 public:
  // The exit status of a command that ended by itself; nothing: it did not.
  [[nodiscard]] virtual std::optional<int> exit_status() const = 0;
};

// hold_ttl: of the leases; a command's time to stop is at most half of it.
// text: digits are the id of a process, which has read nothing yet; all else is run by /bin/sh, without the
// hidden variables. SIGTERM is sent to this process when the command has ended by itself. REQUIRES: the
// process has one thread. Throws InvalidInput where no such process is seen, and Unavailable.
[[nodiscard]] std::shared_ptr<ProgramToHoldFor> open_program(const std::string& text,
                                                             std::chrono::milliseconds hold_ttl,
                                                             std::vector<std::string> hidden_variables);

}  // namespace fenceguard::cli
