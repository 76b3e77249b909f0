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

  friend bool operator==(const Claim&, const Claim&) = default;
};

}  // namespace fenceguard
