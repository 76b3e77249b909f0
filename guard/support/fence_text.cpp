#include "guard/support/fence_text.hpp"

#include <fmt/format.h>

namespace fenceguard {
namespace {

// Cuts off what stands before the next space. Nothing, and no cut, if there is none.
std::optional<std::string_view> take_word(std::string_view& text) {
  const auto space = text.find(' ');
  if (space == text.npos) return std::nullopt;
  const auto word = text.substr(0, space);
  text.remove_prefix(space + 1);
  return word;
}

}  // namespace

std::string text_of(const Fence& fence) {
  return fmt::format("{} {} {} {}", fence.token.value(),
                     fence.sequence ? to_string(*fence.sequence) : std::string{"-"},
                     fence.closed ? "closed" : "open", fence.holder.id());
}

std::optional<Fence> parse_fence(std::string_view text) {
  const auto token_word = take_word(text);
  const auto sequence_word = take_word(text);
  const auto state = take_word(text);
  if (!token_word || !sequence_word || !state) return std::nullopt;
  const auto token = Token::parse(*token_word);
  const auto sequence = *sequence_word == "-" ? std::nullopt : Sequence::parse(*sequence_word);
  const auto holder = text.empty() ? std::optional{Holder{}} : Holder::parse(text);
  const bool is_sound = token && holder && (sequence || *sequence_word == "-");
  if (!is_sound || (*state != "open" && *state != "closed")) return std::nullopt;
  return Fence{*token, *holder, sequence, *state == "closed"};
}

std::optional<Fence> parse_overtaken(std::optional<std::string_view> told, const Claim& claim) {
  if (!told) {
    if (claim.token.value() == 1) return std::nullopt;
    return Fence{Token{claim.token.value() - 1}, Holder{}, std::nullopt, false};
  }
  const auto token_word = take_word(*told);
  const auto token = token_word ? Token::parse(*token_word) : std::nullopt;
  if (!token || told->size() != 3) return std::nullopt;
  const bool is_finished = told->front() == '1';
  return Fence{*token, told->back() == '1' ? claim.holder : Holder{}, std::nullopt, is_finished, is_finished};
}

std::string not_initialised(std::string_view product) {
  return fmt::format(
      "this {} namespace has no floor: it is not initialised, and claims are refused; run 'fenceguard fence "
      "init'",
      product);
}

}  // namespace fenceguard
