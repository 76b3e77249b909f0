#pragma once

// looking(): for calls that change nothing. There an answer that was not seen leaves nothing unknown, it is
// merely not available. Thread-safe.

#include <utility>

#include "guard/error.hpp"

namespace fenceguard {

// What function() answers; an OutcomeUnknown that it throws comes out as Unavailable with the same words.
template <class Function>
decltype(auto) looking(Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const OutcomeUnknown& error) {
    throw Unavailable(error.what());
  }
}

}  // namespace fenceguard
