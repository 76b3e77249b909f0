#include "guard/token.hpp"

#include <charconv>

#include "guard/error.hpp"

namespace fenceguard {

std::optional<std::int64_t> parse_decimal(std::string_view text) noexcept {
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  if (text.front() == '0' && text.size() > 1) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Token::Token(std::int64_t value) : value_{value} {
  if (value < 1)
    throw InvalidInput("a token is a decimal number from 1 to 9223372036854775807; 0 means 'no token'");
}

std::optional<Token> Token::parse(std::string_view text) noexcept {
  const auto value = parse_decimal(text);
  if (!value || *value == 0) return std::nullopt;
  return Token{*value};
}

Sequence::Sequence(std::int64_t value) : value_{value} {
  if (value < 0) throw InvalidInput("a sequence is a decimal number from 0 to 9223372036854775807");
}

std::optional<Sequence> Sequence::parse(std::string_view text) noexcept {
  const auto value = parse_decimal(text);
  if (!value) return std::nullopt;
  return Sequence{*value};
}

}  // namespace fenceguard
