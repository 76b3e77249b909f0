#pragma once

// Claims as arguments of the procedures, and their rows as rulings. Thread-safe, but for the connection.

#include <string>

#include "adapters/mariadb/connection.hpp"
#include "guard/judge.hpp"

namespace fenceguard::mariadb {

// Resource, token, holder.
[[nodiscard]] Row arguments_of(const Claim& claim);
[[nodiscard]] std::optional<std::string> sequence_of(const Claim& claim);
// The jump bound for this claim; nothing is none.
[[nodiscard]] std::optional<std::string> bound_of(const Claim& claim, std::int64_t jump_max);
// Whether the claim was refused by the owner's limit alone: a user with rights on the tables is exempt by
// try_advance_far().
[[nodiscard]] bool is_to_be_exempt(const Rows& rows, const Claim& claim, std::int64_t jump_max);

// The fields of the first row; they throw std::runtime_error where there is none, or no number.
[[nodiscard]] const std::string& text_in(const Rows& rows, std::size_t column);
[[nodiscard]] std::int64_t number_in(const Rows& rows, std::size_t column);

// Of verdict and highest. Throws Implausible, and Unavailable where the fence was lowered meanwhile.
[[nodiscard]] Ruling ruling_of(const Rows& rows, const Claim& claim);

}  // namespace fenceguard::mariadb
