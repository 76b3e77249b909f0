#pragma once

// Commands: what the server itself says of its commands (COMMAND): which of their words are keys, whether
// they write, and whether they can be guarded at all. Asked once for all, and again for a name that is not
// there: that of a module that was loaded later.
//
// Source: the key specifications of Redis 7.0 and later (redis.io/docs/reference/key-specs).
//
// Thread-safe. What it once said stays where it is, and looking it up takes no lock and no memory.

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

  friend bool operator==(const KeySpec&, const KeySpec&) = default;
};

class CommandTable {
 public:
  struct Facts {
    std::string name;  // the server's own, in upper case, also of one that was renamed: 'XGROUP|CREATE'
    bool writes = false;
    bool reads = false;
    bool needs_memory = false;  // refused where there is none left (OOM)
    bool has_subcommands = false;
    bool may_block = false;      // on its own or by an option: BLPOP, XREAD
    bool is_admin = false;       // for administrators: CONFIG|SET
    bool is_noscript = false;    // no script may call it
    bool is_pubsub = false;      // SUBSCRIBE, PUBLISH
    std::string_view objection;  // why it cannot be guarded, whatever its words are; empty: it can
    int arity = 0;               // so many words; negative: at least so many
    std::vector<KeySpec> keys;   // not all, where there is an objection

    friend bool operator==(const Facts&, const Facts&) = default;
  };

  CommandTable() = default;
  ~CommandTable();
  CommandTable(const CommandTable&) = delete;
  CommandTable& operator=(const CommandTable&) = delete;

  // Sends a command to the server and answers its reply; throws as Connection::call does.
  using Ask = std::function<Reply(Arguments)>;

  // Takes in the answer to COMMAND without arguments; where it differs from what is there, it is what is
  // found from then on. A command that was renamed (rename-command) stands in it under its own name, by which
  // it cannot be called. Throws Unavailable for an answer of another form.
  void learn(const Reply& all);
  // Likewise the answer to COMMAND INFO NAME..., which tells what is called by each name.
  void learn(Arguments names, const Reply& infos);

  // What is known of the command that words call, by its name in any case; of one that has subcommands, what
  // is known of that which the second word names. Valid as long as the table. Null: nothing is known. Then
  // find(words.first(1)) tells a subcommand that is not known from such a command.
  [[nodiscard]] const Facts* find(Arguments words) const noexcept;

  // The same, asked for where it is not known: for the first time all commands, in two round trips, later the
  // one name. Throws InvalidInput for a command that the server does not know; Unavailable.
  [[nodiscard]] const Facts& facts(const Ask& ask, const Command& command);

 private:
  // Never changed and never removed.
  struct Entry {
    const std::string name;        // as called, in any case
    const std::string subcommand;  // likewise; empty: of the command itself
    const Facts facts;
    const Entry* const next;  // of the same bucket
  };
  using Bucket = std::atomic<const Entry*>;

  [[nodiscard]] static std::size_t place_of(std::string_view name, std::string_view subcommand) noexcept;
  [[nodiscard]] const Facts* find(std::string_view name, std::string_view subcommand) const noexcept;
  void add(std::string_view name, std::string_view subcommand, const Reply& info);
  void add_whole(std::string_view name, const Reply& info);

  static constexpr std::size_t buckets_count = 512;
  std::array<Bucket, buckets_count> buckets_{};
  std::atomic<bool> has_all_{false};  // the server was asked for all
  std::mutex adding_;
};

// Whether the server takes the word for that option: it compares them without case, and up to the first NUL.
// A name of a command with a NUL is not in the table, and so never sent.
[[nodiscard]] bool is_option(std::string_view word, std::string_view name) noexcept;

// Whether the command reads keys that it does not name: SORT with a pattern of BY or GET. A key or a value of
// that name is taken for the option with it, rather than to read the options as the server does.
[[nodiscard]] bool reads_by_pattern(const CommandTable::Facts& facts, Arguments words);

// Why this very command cannot be guarded, as a sentence about it; empty if it can.
[[nodiscard]] std::string_view objection_to(const CommandTable::Facts& facts, Arguments words);
[[nodiscard]] std::string_view objection_to(const CommandTable::Facts& facts, const Command& command);

// Appends the keys that the command names, which point into it. REQUIRES: no objection to the command. Throws
// InvalidInput where they cannot be told, because it is malformed or could be read in two ways.
void keys_of(const CommandTable::Facts& facts, Arguments words, std::vector<std::string_view>& keys);
[[nodiscard]] std::vector<std::string_view> keys_of(const CommandTable::Facts& facts, const Command& command);

}  // namespace fenceguard::redis
