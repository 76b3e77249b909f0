#pragma once

// The signature of a claim in a request's header fields, checked wherever a claim may move a fence or end a
// lease. See ClaimKeys.
//
// Thread-safe.

#include <optional>
#include <string_view>

#include "guard/claim.hpp"
#include "server/http/wire/message.hpp"

namespace fenceguard {

class ClaimKeys;

inline constexpr std::string_view signature_field = "Fencing-Signature";
inline constexpr std::string_view destination_signature_field = "Fencing-Destination-Signature";

// Nothing where one of the keys signed the claim, or where keys is null, because none is asked for. Otherwise
// the answer: 400 where the field comes more than once, and else 401 'unsigned', which does not tell what is
// wrong with a signature. No fence was moved.
[[nodiscard]] std::optional<http::Response> check_signature(const ClaimKeys* keys, const Claim& claim,
                                                            const http::Fields& fields,
                                                            std::string_view field = signature_field);

// What signs and what asks for signatures on the control side and on the data sides. Both outlive their
// users.
struct SignatureRules {
  const ClaimKeys* signing = nullptr;   // signs what is granted; null: nothing is signed
  const ClaimKeys* required = nullptr;  // claims must be signed with one of these; null: none needs to be
};

}  // namespace fenceguard
