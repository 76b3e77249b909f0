#include "server/data/signature.hpp"

#include <string>

#include "guard/claim_keys.hpp"
#include "server/data/problem.hpp"

namespace fenceguard {

std::optional<http::Response> check_signature(const ClaimKeys* keys, const Claim& claim,
                                              const http::Fields& fields, std::string_view field) {
  if (keys == nullptr) return std::nullopt;
  if (fields.count(field) > 1) return malformed(std::string{field} + " comes more than once.");
  const auto signature = fields.single(field);
  if (signature && keys->verify(claim, *signature)) return std::nullopt;
  ProblemDetails details{"A claim carries its signature, as granted with the lease, in " +
                         std::string{field} + "."};
  details.resource = &claim.resource;
  details.token = claim.token;
  auto response = to_response(Problem::unsigned_claim, details);
  response.fields.add("WWW-Authenticate", "Fencing-Signature realm=\"fenceguard\"");
  return response;
}

}  // namespace fenceguard
