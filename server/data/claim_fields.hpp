#pragma once

// The header fields of a claim: Fencing-Token, Fencing-Holder, Fencing-Sequence. Each at most once, each
// number in its one spelling. Its Fencing-Signature is checked by check_signature().
//
// Pure; safe to use from any thread.

#include <optional>
#include <string>
#include <variant>

#include "guard/claim.hpp"
#include "server/http/wire/message.hpp"

namespace fenceguard {

struct ClaimFields {
  Token token;
  Holder holder;
  std::optional<Sequence> sequence;

  [[nodiscard]] Claim on(Resource resource) const { return {std::move(resource), token, holder, sequence}; }
};

// There is no claim in the fields at all.
struct NoClaim {};

// The fields are repeated, malformed, or others than a token without a token; with a sentence for a 400.
struct BadClaim {
  std::string reason;
};

[[nodiscard]] std::variant<ClaimFields, NoClaim, BadClaim> parse_claim_fields(const http::Fields& fields);

}  // namespace fenceguard
