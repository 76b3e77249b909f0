#pragma once

// A history: what the clients of some resources asked, were told and read, and beside it what the storage
// itself applied, in its order. docs/histories.md is the format. Made by whatever runs clients; judged by
// check.hpp, which knows nothing of the code that ran.
//
// Includes nothing of the product. Values; not thread-safe.

#include <cstdint>
#include <istream>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fenceguard::proof {

using TextId = std::uint32_t;  // of a holder or a value, in Texts; 0 is no value, and the empty holder

enum class Kind : std::uint8_t { advance, write, read, revoke, floor };

// What the client was told. unknown: also where it was told nothing.
enum class Answer : std::uint8_t {
  admitted,
  duplicate,
  stale,
  conflict,
  refused,  // admitted by the rule, and the storage did not apply it
  implausible,
  unavailable,
  unknown,
};

[[nodiscard]] const char* name_of(Kind kind) noexcept;
[[nodiscard]] const char* name_of(Answer answer) noexcept;

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

struct Operation {
  Kind kind = Kind::write;
  Answer answer = Answer::unknown;
  std::int64_t process = 0;
  std::int64_t token = 0;  // 0: none (a plain read, a revoke)
  TextId holder = 0;
  std::int64_t sequence = -1;  // -1: none
  TextId value = 0;            // written, or read; 0: none, or nothing was there
  std::int64_t called = 0;     // in nanoseconds
  std::int64_t returned = never;
  std::int64_t highest = -1;  // as answered; -1: not told
  std::int64_t line = 0;      // of the file

  // The client was told an end of it; an unknown one is told too, and says nothing.
  [[nodiscard]] bool is_ended() const { return answer != Answer::unknown && returned != never; }
};

// What the storage applied.
struct Applied {
  std::int64_t token = 0;
  TextId value = 0;
  std::int64_t line = 0;
};

struct ResourceHistory {
  std::string name;
  std::vector<Operation> operations;
  std::vector<Applied> log;
  bool has_log = false;
};

class Texts {
 public:
  Texts() { (void)id(""); }
  [[nodiscard]] TextId id(std::string_view text);
  [[nodiscard]] const std::string& text(TextId id) const { return *texts_[id]; }

 private:
  std::unordered_map<std::string, TextId> ids_;
  std::vector<const std::string*> texts_;
};

struct History {
  Texts texts;
  std::vector<ResourceHistory> resources;
  std::int64_t bound = 0;  // by which one claim may raise a fence above the namespace's highest; 0: none
};

// A line that is no history, with its number.
class BadHistory : public std::runtime_error {
 public:
  BadHistory(std::int64_t line, const std::string& what)
      : std::runtime_error{"line " + std::to_string(line) + ": " + what} {}
};

struct ReadLimits {
  std::int64_t lines_max = 50'000'000;
  std::size_t line_bytes_max = 65'536;
};

// Reads JSON lines. Throws BadHistory.
[[nodiscard]] History read_history(std::istream& in, ReadLimits limits = {});

// Sorts each resource's operations by their calls, and finds what no client can have done: a return before
// its call, one process at two operations at once, one value written twice. Throws BadHistory.
void put_in_order(History& history);

// One line of the format each, with its newline.
[[nodiscard]] std::string line_of(const History& history, const ResourceHistory& resource,
                                  const Operation& operation);
[[nodiscard]] std::string line_of(const History& history, const ResourceHistory& resource,
                                  const Applied& applied);
// The whole history, as read_history() reads it.
[[nodiscard]] std::string text_of(const History& history);

}  // namespace fenceguard::proof
