#pragma once

// A fence as the text that ZooKeeper and etcd keep: 'TOKEN SEQUENCE STATE HOLDER', where SEQUENCE is '-' if
// there is none and STATE is open or closed; what SQL says of one that was overtaken; and what is said of a
// namespace without a floor. Thread-safe.

#include <optional>
#include <string>
#include <string_view>

#include "guard/judge.hpp"

namespace fenceguard {

[[nodiscard]] std::string text_of(const Fence& fence);

// Nothing for what is no fence in its only spelling.
[[nodiscard]] std::optional<Fence> parse_fence(std::string_view text);

// The fence that a claim was raised over. told: 'TOKEN FINISHED SAME', where FINISHED, and SAME for the
// claim's own holder, are 0 or 1, so that another holder's name is not told; empty if there was none. Nothing
// told, by SQL that is too old: there may be somebody, up to the number below the claim's.
[[nodiscard]] std::optional<Fence> parse_overtaken(std::optional<std::string_view> told, const Claim& claim);

// product: 'etcd'.
[[nodiscard]] std::string not_initialised(std::string_view product);

}  // namespace fenceguard
