#pragma once

// SidecarClaims: the claims that the sidecar holds for its clients (serve --hold), which then bring none of
// their own; and what a client is told that must begin its work anew first (FENCE.BEGIN).
//
// Not thread-safe.

#include <string>
#include <string_view>
#include <vector>

#include "server/resp/command/claims.hpp"

namespace fenceguard::resp {

class SidecarClaims {
 public:
  void hold(std::vector<Claim> claims) { held_ = std::move(claims); }
  // The client has them only after FENCE.BEGIN: until then it is told that its lease was lost, and why.
  void hold_until_begun(std::vector<Claim> claims, std::string_view why);

  // Where the client has claims of these.
  [[nodiscard]] bool empty() const noexcept { return held_.empty(); }
  void give_to(Claims& claims, int database) const;
  // Those that it will have then.
  [[nodiscard]] const std::vector<Claim>& reserved() const noexcept { return reserved_; }
  // The error that a client gets until it begins anew; empty: none.
  [[nodiscard]] const std::string& lost() const noexcept { return lost_; }
  // FENCE.BEGIN [TOKEN]. The program says that nothing is in its memory that it read before this connection's
  // lease; or before that of a token, where its driver says it by itself on each connection. The error;
  // empty: it has begun, and has its claims in the database.
  [[nodiscard]] std::string begin(redis::Arguments words, Claims& claims, int database);

 private:
  std::vector<Claim> held_;
  std::vector<Claim> reserved_;  // until it begins
  std::string lost_;
};

}  // namespace fenceguard::resp
