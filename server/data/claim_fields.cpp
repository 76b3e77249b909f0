#include "server/data/claim_fields.hpp"

#include "guard/support/text.hpp"

namespace fenceguard {
namespace {

// The fields of a claim as sent, found in one pass; most requests have few others.
struct RawFields {
  std::optional<std::string_view> token;
  std::optional<std::string_view> holder;
  std::optional<std::string_view> sequence;
  std::optional<std::string_view> signature;
  std::string_view repeated;
};

RawFields find_fields(const http::Fields& fields) {
  RawFields raw;
  const auto take = [&](std::optional<std::string_view>& slot, const std::string& name,
                        const std::string& value) {
    if (slot) raw.repeated = name;
    slot = value;
  };
  for (const auto& [name, value] : fields) {
    if (name.size() < 13 || name.size() > 17) continue;
    if (equals_ignoring_case(name, "fencing-token")) take(raw.token, name, value);
    if (equals_ignoring_case(name, "fencing-holder")) take(raw.holder, name, value);
    if (equals_ignoring_case(name, "fencing-sequence")) take(raw.sequence, name, value);
    if (equals_ignoring_case(name, "fencing-signature")) take(raw.signature, name, value);
  }
  return raw;
}

}  // namespace

std::variant<ClaimFields, NoClaim, BadClaim> parse_claim_fields(const http::Fields& fields) {
  const RawFields raw = find_fields(fields);
  if (!raw.repeated.empty()) return BadClaim{std::string{raw.repeated} + " comes more than once."};
  if (!raw.token) {
    if (!raw.holder && !raw.sequence && !raw.signature) return NoClaim{};
    return BadClaim{
        "There is a Fencing-Holder, Fencing-Sequence or Fencing-Signature without a Fencing-Token."};
  }
  const auto token = Token::parse(*raw.token);
  if (!token) {
    return BadClaim{
        "Fencing-Token is a decimal number from 1 to 9223372036854775807, without sign or leading zero."};
  }
  ClaimFields claim{*token, {}, {}};
  if (raw.holder) {
    auto holder = Holder::parse(*raw.holder);
    if (!holder) return BadClaim{"Fencing-Holder is 1 to 128 bytes of visible ASCII, as granted."};
    claim.holder = std::move(*holder);
  }
  if (raw.sequence) {
    claim.sequence = Sequence::parse(*raw.sequence);
    if (!claim.sequence) {
      return BadClaim{
          "Fencing-Sequence is a decimal number up to 9223372036854775807, without sign or leading zero."};
    }
  }
  return claim;
}

}  // namespace fenceguard
