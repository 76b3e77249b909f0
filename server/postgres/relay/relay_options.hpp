#pragma once

// What all relays of one sidecar share, and what they tell of rulings. Options are set once, and thread-safe
// from then on.

#include <cstddef>
#include <cstdint>
#include <string>

#include "guard/claim.hpp"
#include "guard/error.hpp"
#include "guard/judge.hpp"
#include "server/data/permissions.hpp"

namespace fenceguard {
class ClaimKeys;
}

namespace fenceguard::pgwire {

struct RelayOptions {
  Unfenced unfenced = Unfenced::read;
  std::int64_t jump_max = 0;
  const ClaimKeys* keys_required =
      nullptr;  // claims must be signed with one of these; null: none needs to be
  std::size_t statement_bytes_max = std::size_t{16} << 20;
  bool needs_primary = false;  // a standby is not relayed to
  // 32 characters that nobody can guess, for each session.
  std::string (*draw_nonce)() = [] { return Holder::random().id(); };
};

// What is told of rulings, for metrics and the log.
class RelayObserver {
 public:
  virtual ~RelayObserver() = default;
  // highest: 0 where it is not told.
  virtual void ruled(const char* operation, const Claim& claim, Verdict verdict, std::int64_t highest) = 0;
  // No verdict was given on the claim.
  virtual void failed(const char* operation, const Claim& claim, const Fault& fault) = 0;
  // A session without a claim was refused, or tried to write.
  virtual void missing() = 0;
  virtual void not_signed(const Claim& claim) = 0;
  // The server is a standby, and a primary is needed.
  virtual void is_standby() = 0;
};

}  // namespace fenceguard::pgwire
