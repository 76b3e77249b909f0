#pragma once

// A call of a store on behalf of a lane: what it throws is an answer as well.

#include "guard/error.hpp"

namespace fenceguard::proxy {

// A call that throws has not been taken, and is answered here. An answer does not throw.
template <class Answer, class Call>
void call_store(const Answer& answer, Call call) noexcept {
  try {
    call();
  } catch (...) {
    Fault fault = current_fault();
    fault.kind = FaultKind::unavailable;
    answer(std::move(fault));
  }
}

}  // namespace fenceguard::proxy
