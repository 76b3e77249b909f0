#pragma once

// Rules that every history keeps, each looked at in one pass, so for logs of any length, and without a model:
// what the search finds by trying, these find by counting, and neither is of use to hide a flaw of the other.
//
//   fence-falls     an answer names a lower highest token than an answer that was there before the call
//   lower-admitted  a token was admitted after a higher one
//   two-holders     two holders were admitted under one number
//   no-reason       refused without a higher token, a floor, a revoke, another holder or an own later
//   sequence
//                   that was there first; or beyond a bound that it is not beyond
//   log-falls       tokens in the storage's own log fall
//   lost            an acknowledged write is not in the log
//   twice           a write is in the log twice
//   unasked         what is in the log was never asked, was refused, or is in it under another token
//   log-order       the log has two writes the other way round than their clients saw them
//   read            a value was read that was never written, was refused, or was written later
//   older-after     a holder was let in to read, and a write with a lower token took effect after what it
//   read older-value     a read shows less than what was over before it began
//
// Includes nothing of the product.

#include <optional>
#include <string>

#include "tests/proof/checker/history.hpp"

namespace fenceguard::proof {

struct Breach {
  std::string rule;
  std::string sentence;
};

// What is broken first in one resource's history; namespace_highest: see NamespaceTokens. REQUIRES:
// put_in_order().
[[nodiscard]] std::optional<Breach> broken_rule(const ResourceHistory& resource, const Texts& texts);

// The bound goes by all resources of a namespace. Nothing where the history names no bound, and no claim was
// found implausible.
[[nodiscard]] std::optional<Breach> broken_bound(const History& history);

}  // namespace fenceguard::proof
