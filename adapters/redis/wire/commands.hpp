#pragma once

// Commands: what the server itself says of a command (COMMAND INFO, COMMAND GETKEYS): which of its words are
// keys, whether it writes, and whether it can be guarded at all. Asked once per command, but where only the
// whole command tells its keys (ZUNIONSTORE, XREADGROUP, SORT).
//
// Not thread-safe.

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/redis/wire/connection.hpp"

namespace fenceguard::redis {

using Command = std::vector<std::string>;  // {"SET", "{accounts/42}:balance", "70"}

class CommandTable {
 public:
  // What a command is, and where its keys are: the words first, first + step, ... up to last (counted from
  // the end if negative).
  struct Facts {
    std::string name;  // the server's own, in upper case, also of one that was renamed: 'XGROUP|CREATE'
    bool writes = false;
    bool reads = false;
    bool has_subcommands = false;
    bool has_movable_keys = false;
    std::string_view objection;  // why it cannot be guarded, whatever its words are; empty: it can
    int arity = 0;               // so many words; negative: at least so many
    int first_key = 0;           // 0: none
    int last_key = 0;
    int key_step = 1;
  };

  // Sends a command to the server and answers its reply; throws as Connection::call does.
  using Ask = std::function<Reply(Arguments)>;

  // Throws InvalidInput for a command that the server does not know; Unavailable.
  [[nodiscard]] const Facts& facts(const Ask& ask, const Command& command);

  // The keys that the command names, which point into it. Throws InvalidInput where it is malformed;
  // Unavailable.
  [[nodiscard]] std::vector<std::string_view> keys(const Ask& ask, const Command& command);

 private:
  struct CaseLess {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const noexcept;
  };

  const Facts& look_up(const Ask& ask, const std::string& name);

  std::map<std::string, Facts, CaseLess> facts_;  // by the name that was called
};

// Why this very command cannot be guarded, as a sentence about it; empty if it can.
[[nodiscard]] std::string_view objection_to(const CommandTable::Facts& facts, const Command& command);

}  // namespace fenceguard::redis
