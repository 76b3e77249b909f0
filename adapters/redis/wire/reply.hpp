#pragma once

// Reply: what a Redis server answered, as a value. Integers are exact; where a command ran inside a script,
// see Guard for what becomes of those beyond 2^53.

#include <cstdint>
#include <string>
#include <vector>

namespace fenceguard::redis {

struct Reply {
  enum class Kind { nil, integer, status, text, array, error };

  Kind kind = Kind::nil;
  std::int64_t integer = 0;     // of an integer
  std::string text;             // of a status ('OK'), a text, an error ('WRONGTYPE Operation against ...')
  std::vector<Reply> elements;  // of an array

  [[nodiscard]] bool is_error() const noexcept { return kind == Kind::error; }
  [[nodiscard]] bool is_nil() const noexcept { return kind == Kind::nil; }

  friend bool operator==(const Reply&, const Reply&) = default;
};

}  // namespace fenceguard::redis
