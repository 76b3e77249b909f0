#include "server/resp/relay/sidecar_claims.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fenceguard::resp {

void SidecarClaims::hold_until_begun(std::vector<Claim> claims, std::string_view why) {
  reserved_ = std::move(claims);
  lost_ = fmt::format("LOST {}: start the program anew, or let it say FENCE.BEGIN", why);
}

void SidecarClaims::give_to(Claims& claims, int database) const {
  for (const auto& claim : held_) claims.hold(database, std::make_shared<HeldClaim>(claim));
}

std::string SidecarClaims::begin(redis::Arguments words, Claims& claims, int database) {
  if (words.size() > 2) return "ERR fenceguard: write FENCE.BEGIN [TOKEN]";
  if (held_.empty() && reserved_.empty())
    return "ERR fenceguard: FENCE.BEGIN is for a sidecar that holds the claims of its clients (--hold); here "
           "a "
           "connection says FENCE";
  if (words.size() == 2) {
    const auto token_of = [](const Claim& claim) { return claim.token; };
    const auto present = std::ranges::max(held_.empty() ? reserved_ : held_, {}, token_of).token;
    if (Token::parse(words[1]) != present) {
      auto text = fmt::format(
          "LOST the lease of token {} is over, and this connection's has {}; start again from the read, "
          "and say FENCE.BEGIN with that",
          words[1].substr(0, 20), to_string(present));
      // The client was let in because its program is young enough, and says now that its work is not.
      if (lost_.empty()) lost_ = text;
      return text;
    }
  }
  lost_.clear();
  if (!reserved_.empty()) {
    held_ = std::exchange(reserved_, {});
    give_to(claims, database);
  }
  return {};
}

}  // namespace fenceguard::resp
