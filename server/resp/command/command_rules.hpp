#pragma once

// CommandRules: what becomes of a command that a client says, by what Redis says of it. Deny by default: a
// command passes unjudged only if its flags say that it reads, or it is on a short list; all that writes is
// judged; the rest is refused with a reason.
//
// Values; thread-safe.

#include <string_view>

#include "adapters/redis/keys.hpp"
#include "adapters/redis/wire/commands.hpp"
#include "server/data/permissions.hpp"

namespace fenceguard::resp {

enum class Way {
  read,     // passes on the shared connections
  write,    // is judged
  own,      // passes, on a connection of the client's own: it waits, or Redis keeps something for the client
  script,   // EVAL and its kin: the keys that it declares must be claimed; in a watched transaction
  refused,  // not permitted here: objection
};

struct Rule {
  Way way = Way::refused;
  std::string_view objection{};  // why not, as a sentence
};

// Of a command that is none of the connection's own (see connection_commands.cpp). words: with its name.
[[nodiscard]] Rule rule_for(const redis::CommandTable::Facts& facts, redis::Arguments words,
                            const Permissions& permissions);

// EVAL, FCALL and their kin.
[[nodiscard]] bool is_script(std::string_view name) noexcept;

// How the same is said without waiting; empty where there is no such form.
[[nodiscard]] std::string_view form_without_waiting(std::string_view name) noexcept;

// Whether these words wait: XREAD without BLOCK does not.
[[nodiscard]] bool waits(const redis::CommandTable::Facts& facts, redis::Arguments words);

// True for a command that names a pattern through which it could read what is fenceguard's own (SORT ...
// GET), or whose keys are not described and which has a word that would be one of its own (MIGRATE, DEBUG).
[[nodiscard]] bool reaches_reserved(const redis::CommandTable::Facts& facts, redis::Arguments words,
                                    const redis::Keys& keys);

}  // namespace fenceguard::resp
