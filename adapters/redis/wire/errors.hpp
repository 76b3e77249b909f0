#pragma once

// What an error that a Redis server answered means to us: the one place where its words become our faults.
// All functions are thread-safe.

#include <string_view>

#include "adapters/redis/wire/reply.hpp"
#include "guard/error.hpp"

namespace fenceguard::redis {

// The fault that an error reply to a call of ours stands for. doing begins its message: 'advancing
// accounts/42'. REQUIRES: reply.is_error().
[[nodiscard]] Fault fault_of(std::string_view doing, const Reply& reply);

// The reply, unless it is an error: that is raised as fault_of() says.
[[nodiscard]] Reply unless_error(std::string_view doing, Reply reply);

// The answer to a script that the server does not have: nothing was run.
[[nodiscard]] bool is_unknown_script(const Reply& reply);

}  // namespace fenceguard::redis
