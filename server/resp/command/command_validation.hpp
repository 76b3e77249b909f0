#pragma once

// Why a command may not be relayed, as the error that its client gets, without its '-'; empty: it may. What a
// command is by what Redis says of it is in command_rules.hpp; whether there is a claim, the relay knows.
//
// Pure functions; thread-safe.

#include <string>
#include <string_view>
#include <vector>

#include "adapters/redis/keys.hpp"
#include "adapters/redis/wire/commands.hpp"
#include "server/resp/command/command_rules.hpp"

namespace fenceguard::resp {

// A command's keys, which point into its words, and in a cluster the slot of all of them.
struct CommandKeys {
  std::vector<std::string_view> names{};
  int slot = -1;
};

// Where commands go.
struct Destination {
  const redis::Keys& keys;  // fenceguard's own
  bool is_cluster = false;
};

inline constexpr std::string_view crossslot = "CROSSSLOT Keys in request don't hash to the same slot";
inline constexpr std::string_view crossslot_watched = "CROSSSLOT keys of another slot are watched";
inline constexpr std::string_view shard_channels =
    "ERR fenceguard: the channels of a cluster's shards are not relayed";

// Finds the keys as well.
[[nodiscard]] std::string objection_to(const redis::CommandTable::Facts& facts, redis::Arguments words,
                                       const Rule& rule, const Destination& to, CommandKeys& found);
// Where nothing may be done without a claim: why none could cover the command.
[[nodiscard]] std::string objection_to_unclaimed(const redis::CommandTable::Facts& facts,
                                                 redis::Arguments words, const CommandKeys& found);
// Of a command under FENCED.
[[nodiscard]] std::string objection_under(const redis::CommandTable::Facts& facts, redis::Arguments words,
                                          const Rule& rule, std::string_view resource, const Destination& to,
                                          CommandKeys& found);
// Of one that waits, under a claim.
[[nodiscard]] std::string objection_to_waiting(const redis::CommandTable::Facts& facts);
// Of a key whose resource is none that can be claimed: objection says why.
[[nodiscard]] std::string objection_to_key(std::string_view key, std::string_view objection);
[[nodiscard]] std::string no_claim_text(std::string_view resource, bool has_fenced);

// What Redis answers to a command that it does not know.
[[nodiscard]] std::string unknown_command_text(redis::Arguments words, const redis::CommandTable& commands);
// Redis may be asked whether it knows it. What it would take for another command's name is not learnt for
// good.
[[nodiscard]] bool may_be_command(std::string_view name) noexcept;

}  // namespace fenceguard::resp
