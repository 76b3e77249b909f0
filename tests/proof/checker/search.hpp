#pragma once

// The search for a linearization of one resource's history: an order of its operations, each at a moment
// between its call and its return, in which the model gives every client the answer that it was told.
//
// Method: J. Wing, C. Gong, 'Testing and Verifying Concurrent Objects' (1993), with the memory of failed
// states of G. Lowe, 'Testing for linearizability' (2017). Two things keep it short. An operation that
// changes nothing is taken as soon as it fits. A write whose end nobody saw is one that returned with the
// first read of its value, or else took no effect that shows; and a fence that it raised is raised directly
// before an answer that needs it, because until then nothing tells the difference.
//
// Includes nothing of the product.

#include <cstdint>
#include <vector>

#include "tests/proof/checker/history.hpp"

namespace fenceguard::proof {

enum class Found : std::uint8_t { order, none, undecided };

// REQUIRES: the operations are in the order of their calls (put_in_order()). undecided: more than steps_max
// were tried; a failure of the check, not of the storage.
[[nodiscard]] Found find_order(const std::vector<Operation>& operations, std::int64_t steps_max = 5'000'000);

}  // namespace fenceguard::proof
