#pragma once

// What a complete answer of the upstream says of how a write ended.
//
// Pure; safe to use from any thread.

#include "server/lane/lane_events.hpp"

namespace fenceguard::proxy {

// Whether a complete answer with this status says how a write ended. 202 is a promise; 408, 460, 499 and most
// from 502 on (those of balancers and content networks included) come from servers that have lost sight of
// it.
[[nodiscard]] bool proves_end(unsigned status) noexcept;

// How a write ended that was answered whole, with this status. is_early: before all of it had arrived.
[[nodiscard]] Ending ending_of_answer(unsigned status, bool has_sequence, bool is_early) noexcept;

}  // namespace fenceguard::proxy
