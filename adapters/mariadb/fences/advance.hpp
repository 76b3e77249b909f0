#pragma once

// Calls that wait for the lock of a fence's row, and cut those that keep it. Thread safety: that of the
// connection.

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "adapters/mariadb/admit_options.hpp"
#include "adapters/mariadb/connection.hpp"
#include "guard/judge.hpp"

namespace fenceguard::mariadb {

// call(limit), which waits so long for the lock of a fence's row. Where it gives up after drain, because
// older transactions are still open, it is called once more with 5 s and a HolderCutter beside. Throws
// ServerError and ConnectionLost; Unavailable where they could not be ended.
Rows call_cutting(Connection& connection, const std::optional<Claim>& newer, std::chrono::seconds drain,
                  const std::function<Rows(std::chrono::seconds limit)>& call);

// try_advance(), and a cut of older holders where it must (Guard::advance()). Throws Implausible,
// Unavailable, OutcomeUnknown. doing: for messages.
[[nodiscard]] Ruling advance_by(Connection& connection, const Claim& claim, const AdmitOptions& options,
                                const std::string& doing);

}  // namespace fenceguard::mariadb
