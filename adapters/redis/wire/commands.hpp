#pragma once

// Commands: what the server itself says of a command (COMMAND INFO): which of its words are keys, whether it
// writes, and whether it can be guarded at all. Asked once per name, because a server may call a command by
// another (rename-command).
//
// Source: the key specifications of Redis 7.0 and later (redis.io/docs/reference/key-specs).
//
// Thread-safe; what it once said stays as it is, and looking it up takes no lock.

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/redis/wire/connection.hpp"

namespace fenceguard::redis {

using Command = std::vector<std::string>;  // {"SET", "{accounts/42}:balance", "70"}

// Where some of a command's keys are. Their first is the word at 'begin', counted from the name, or the one
// behind 'keyword', in any case, which is looked for from the word 'begin' on.
struct KeySpec {
  int begin = 0;
  std::string keyword{};
  // The last, from the first on, or from the end if negative; with a limit only the first of so many equal
  // parts are keys. Where a word counts the keys, that is the word count_at behind the first, and the keys
  // begin key_at behind it.
  bool is_counted = false;
  int last = 0;
  int limit = 0;
  int count_at = 0;
  int key_at = 0;
  int step = 1;
};

class CommandTable {
 public:
  struct Facts {
    std::string name;  // the server's own, in upper case, also of one that was renamed: 'XGROUP|CREATE'
    bool writes = false;
    bool reads = false;
    bool needs_memory = false;  // refused where there is none left (OOM)
    bool has_subcommands = false;
    std::string_view objection;  // why it cannot be guarded, whatever its words are; empty: it can
    int arity = 0;               // so many words; negative: at least so many
    std::vector<KeySpec> keys;   // not all, where there is an objection
  };

  CommandTable() = default;
  ~CommandTable();
  CommandTable(const CommandTable&) = delete;
  CommandTable& operator=(const CommandTable&) = delete;

  // Sends a command to the server and answers its reply; throws as Connection::call does.
  using Ask = std::function<Reply(Arguments)>;

  // Valid as long as the table. Throws InvalidInput for a command that the server does not know; Unavailable.
  [[nodiscard]] const Facts& facts(const Ask& ask, const Command& command);

 private:
  // Under the name that was called, in any case. Never changed and never removed.
  struct Entry {
    const std::string name;
    const Facts facts;
    const Entry* const next;  // of the same bucket
  };
  using Bucket = std::atomic<const Entry*>;

  [[nodiscard]] static const Facts* find(const Bucket& bucket, std::string_view name) noexcept;
  [[nodiscard]] Bucket& bucket_of(std::string_view name) noexcept;
  [[nodiscard]] const Facts& named(const Ask& ask, std::string_view name);

  std::array<Bucket, 128> buckets_{};
  std::mutex adding_;
};

// Why this very command cannot be guarded, as a sentence about it; empty if it can.
[[nodiscard]] std::string_view objection_to(const CommandTable::Facts& facts, const Command& command);

// The keys that the command names, which point into it. REQUIRES: no objection to the command. Throws
// InvalidInput where they cannot be told, because it is malformed or could be read in two ways.
[[nodiscard]] std::vector<std::string_view> keys_of(const CommandTable::Facts& facts, const Command& command);

}  // namespace fenceguard::redis
