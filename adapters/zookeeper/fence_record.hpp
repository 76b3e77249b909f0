#pragma once

// How a fence and the floor are written into their nodes: 'TOKEN SEQUENCE STATE HOLDER', where SEQUENCE is
// '-' if there is none and STATE is open or closed; and a decimal number. Thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "guard/judge.hpp"

namespace fenceguard::zookeeper {

[[nodiscard]] std::string text_of(const Fence& fence);

// Nothing for what is no fence in its only spelling.
[[nodiscard]] std::optional<Fence> parse_fence(std::string_view text);

}  // namespace fenceguard::zookeeper
