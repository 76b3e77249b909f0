#pragma once

// Claim: what accompanies an operation and is judged against the fence of its resource. Comes with a lease
// (Lease::claim()), or is put together from what a client sent.

#include <optional>
#include <utility>

#include "guard/resource.hpp"
#include "guard/token.hpp"

namespace fenceguard {

struct Claim {
  Resource resource;
  Token token;
  Holder holder;
  std::optional<Sequence> sequence;
  // Said by a guard of a token that its own source granted, never by a client: exempt from the jump bound
  // (see is_implausible()). Two claims are equal whatever it says.
  bool is_own_grant = false;

  // The same claim with the number of one of the holder's own writes, so that a delayed duplicate is
  // recognised.
  [[nodiscard]] Claim with(Sequence number) const {
    Claim copy = *this;
    copy.sequence = number;
    return copy;
  }

  // The same claim for an operation that writes nothing and so must not use up a sequence: an advance, a
  // read.
  [[nodiscard]] Claim without_sequence() const {
    Claim copy = *this;
    copy.sequence.reset();
    return copy;
  }

  // The same claim as one that the guard's own source granted.
  [[nodiscard]] Claim as_own_grant() const {
    Claim copy = *this;
    copy.is_own_grant = true;
    return copy;
  }

  friend bool operator==(const Claim& a, const Claim& b) {
    return a.resource == b.resource && a.token == b.token && a.holder == b.holder && a.sequence == b.sequence;
  }
};

}  // namespace fenceguard
