#pragma once

// A guarded write and what became of it. Values.

#include <vector>

#include "adapters/redis/wire/commands.hpp"
#include "adapters/redis/wire/reply.hpp"
#include "guard/claim.hpp"
#include "guard/judge.hpp"

namespace fenceguard::redis {

// One guarded write: a claim, and the commands under it.
struct Write {
  Claim claim;
  std::vector<Command> commands;
};

struct WriteResult {
  Ruling ruling;               // has a fence only where the claim itself tells all of it
  std::vector<Reply> replies;  // of the commands that were run, in their order; none unless admitted
};

}  // namespace fenceguard::redis
