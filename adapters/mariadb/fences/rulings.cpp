#include "adapters/mariadb/fences/rulings.hpp"

#include <fmt/format.h>

#include "guard/error.hpp"

namespace fenceguard::mariadb {

Row arguments_of(const Claim& claim) {
  return {claim.resource.name(), to_string(claim.token), claim.holder.id()};
}

std::optional<std::string> sequence_of(const Claim& claim) {
  if (!claim.sequence) return std::nullopt;
  return to_string(*claim.sequence);
}

std::optional<std::string> bound_of(const Claim& claim, std::int64_t jump_max) {
  const auto bound = jump_bound(claim, jump_max);
  if (bound == 0) return std::nullopt;
  return std::to_string(bound);
}

bool is_to_be_exempt(const Rows& rows, const Claim& claim, std::int64_t jump_max) {
  return text_in(rows, 0) == "implausible" && !bound_of(claim, jump_max);
}

const std::string& text_in(const Rows& rows, std::size_t column) {
  if (rows.empty() || column >= rows.front().size() || !rows.front()[column])
    throw std::runtime_error("a procedure of the fences answered without a value");
  return *rows.front()[column];
}

std::int64_t number_in(const Rows& rows, std::size_t column) {
  const auto& text = text_in(rows, column);
  const auto number = parse_decimal(text);
  if (!number) throw std::runtime_error("a procedure of the fences answered '" + text + "' for a number");
  return *number;
}

Ruling ruling_of(const Rows& rows, const Claim& claim) {
  const auto& word = text_in(rows, 0);
  if (word == "implausible") {
    throw Implausible(
        fmt::format("token {} is too far above {}, the highest token seen; no fence was moved. Where it is "
                    "the first of a "
                    "source whose numbers stand high, run 'fenceguard fence init' with that source",
                    to_string(claim.token), text_in(rows, 1)));
  }
  if (word == "advance") throw Unavailable("the fence was lowered by hand meanwhile; nothing was written");
  const auto verdict = parse_verdict(word);
  if (!verdict) throw std::runtime_error("a procedure of the fences answered '" + word + "'");
  Ruling ruling{*verdict, number_in(rows, 1), std::nullopt, false};
  const bool is_good = *verdict == Verdict::admitted || *verdict == Verdict::duplicate;
  if (is_good && claim.sequence) ruling.fence = Fence{claim.token, claim.holder, claim.sequence, false};
  return ruling;
}

}  // namespace fenceguard::mariadb
