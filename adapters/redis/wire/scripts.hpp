#pragma once

// The scripts of adapters/redis/lua, put together with what they share. Thread-safe.

#include "adapters/redis/wire/script.hpp"

namespace fenceguard::redis::scripts {

// Of the token source.
[[nodiscard]] const Script& grant();
[[nodiscard]] const Script& renew();
[[nodiscard]] const Script& release();
[[nodiscard]] const Script& end();
[[nodiscard]] const Script& show();
[[nodiscard]] const Script& raise();
[[nodiscard]] const Script& lower();
[[nodiscard]] const Script& draw_one();
// The same with ?fair=1, and what keeps its lines.
[[nodiscard]] const Script& grant_in_line();
[[nodiscard]] const Script& release_in_line();
[[nodiscard]] const Script& end_in_line();
[[nodiscard]] const Script& line_up();
[[nodiscard]] const Script& leave();

// Of the guard.
[[nodiscard]] const Script& guarded(bool is_cluster);
// The same for one command that writes, under a claim without a sequence.
[[nodiscard]] const Script& guarded_one(bool is_cluster);
// The same for a client without a claim, where that may write to what has no fence; and the question alone.
[[nodiscard]] const Script& unfenced(bool is_cluster);
[[nodiscard]] const Script& unfenced_one(bool is_cluster);
[[nodiscard]] const Script& have_no_fence(bool is_cluster);

// Of the fence store.
[[nodiscard]] const Script& advance();
[[nodiscard]] const Script& look();
[[nodiscard]] const Script& revoke();
[[nodiscard]] const Script& rebase();
[[nodiscard]] const Script& lower_highest();
[[nodiscard]] const Script& init();
[[nodiscard]] const Script& compact();
[[nodiscard]] const Script& eviction();

// The library of functions for clients of Redis in any language (FUNCTION LOAD), made of the same parts, and
// the version that its fenceguard_version answers.
[[nodiscard]] std::string functions();
[[nodiscard]] std::string_view functions_version() noexcept;

}  // namespace fenceguard::redis::scripts
