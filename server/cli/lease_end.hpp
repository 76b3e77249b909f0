#pragma once

// How a process ends that held a lease: not later because its source hangs. What waits for an answer then is
// left behind, and the lease ends by itself.

#include <chrono>
#include <functional>
#include <optional>

#include "guard/token_source.hpp"

namespace fenceguard::cli {

// Ends the process at once, with all its threads; what it printed is written out.
[[noreturn]] void leave(int status);

// Gives a lease back by calling release, on a thread of its own. Nothing if the source did not answer within
// limit: the caller then ends the process by leave(), because that thread still uses what release refers to.
// Throws as release.
[[nodiscard]] std::optional<Release> release_within(std::function<Release()> release,
                                                    std::chrono::milliseconds limit);

}  // namespace fenceguard::cli
