#pragma once

// How a process ends that held a lease: not later because its source hangs. What waits for an answer then is
// left behind, and the lease ends by itself.

#include <chrono>
#include <optional>

#include "guard/lease.hpp"

namespace fenceguard::cli {

// Ends the process at once, with all its threads; what it printed is written out.
[[noreturn]] void leave(int status);

// Gives the lease back. Nothing if the source did not answer within limit: the caller then ends the process
// by leave(), because a thread still uses the lease. Throws as Lease::release().
[[nodiscard]] std::optional<Release> release_within(Lease& lease, std::chrono::milliseconds limit);

}  // namespace fenceguard::cli
