#pragma once

// The numbers of a claim: Token and Sequence. A token is drawn by a token source at each grant of a lock and
// only rises; a sequence is raised by the holder with each of its own writes under one token. Both travel as
// decimal text, because they exceed 2^53, where JSON readers, JavaScript and Lua round.
//
// Values; safe to copy and to use from any thread.

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fenceguard {

// Reads a decimal number of [0, 2^63-1] in its only spelling: digits, no sign, no space, no leading zero.
// Nothing for everything else.
[[nodiscard]] std::optional<std::int64_t> parse_decimal(std::string_view text) noexcept;

// A positive 63-bit number, 1 to 9223372036854775807. 0 means 'no token' and cannot be held in this type.
class Token {
 public:
  // Throws InvalidInput unless value is positive.
  explicit Token(std::int64_t value);

  // Nothing if the text is not a token in its only spelling.
  [[nodiscard]] static std::optional<Token> parse(std::string_view text) noexcept;

  [[nodiscard]] std::int64_t value() const noexcept { return value_; }
  friend auto operator<=>(const Token&, const Token&) = default;

 private:
  std::int64_t value_;
};

// A number of 0 to 9223372036854775807 that the holder raises with each of its own writes under one token.
class Sequence {
 public:
  // Throws InvalidInput if value is negative.
  explicit Sequence(std::int64_t value);

  [[nodiscard]] static std::optional<Sequence> parse(std::string_view text) noexcept;

  [[nodiscard]] std::int64_t value() const noexcept { return value_; }
  friend auto operator<=>(const Sequence&, const Sequence&) = default;

 private:
  std::int64_t value_;
};

[[nodiscard]] inline std::string to_string(Token token) {
  return std::to_string(token.value());
}
[[nodiscard]] inline std::string to_string(Sequence sequence) {
  return std::to_string(sequence.value());
}

}  // namespace fenceguard
