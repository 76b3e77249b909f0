#pragma once

// Commands: what the server itself says of a command (COMMAND INFO, COMMAND GETKEYS): which of its words are
// keys, whether it writes, whether a script may call it. Asked once per command, but where only the whole
// command tells its keys.
//
// Not thread-safe.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/redis/connection.hpp"

namespace fenceguard::redis {

using Command = std::vector<std::string>;  // {"SET", "{accounts/42}:balance", "70"}

class CommandTable {
 public:
  // What a command is, and where its keys are: the words first, first + step, ... up to last (counted from
  // the end if negative).
  struct Facts {
    bool writes = false;
    bool reads = false;
    bool is_for_scripts = false;   // a script may call it
    bool runs_scripts = false;     // EVAL and its kin: what they write is not known beforehand
    bool leaves_database = false;  // MOVE, and COPY with DB: writes where no fence looks
    bool has_movable_keys = false;
    int first_key = 0;  // 0: none
    int last_key = 0;
    int key_step = 1;
  };

  // Throws InvalidInput for a command that the server does not know; Unavailable.
  [[nodiscard]] const Facts& facts(Connection& connection, const Command& command);

  // The keys that the command names. Throws InvalidInput where it is malformed; Unavailable.
  [[nodiscard]] std::vector<std::string> keys(Connection& connection, const Command& command);

 private:
  std::map<std::string, Facts> facts_;  // by name, in upper case
};

}  // namespace fenceguard::redis
