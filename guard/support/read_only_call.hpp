#pragma once

// read_only_call(): for calls that change nothing. A lost answer to such a call leaves nothing unknown: it is
// merely unavailable. Thread-safe.

#include <utility>

#include "guard/error.hpp"

namespace fenceguard {

// What function() answers; an OutcomeUnknown that it throws comes out as Unavailable with the same words.
template <class Function>
decltype(auto) read_only_call(Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const OutcomeUnknown& error) {
    throw Unavailable(error.what());
  }
}

}  // namespace fenceguard
