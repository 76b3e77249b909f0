#pragma once

// wait_for: calls what answers through a Done, and waits for the answer.
//   auto ruling = wait_for<Ruling>([&](Done<Ruling> done) { store.advance(claim, done); });

#include <future>
#include <memory>

#include "guard/error.hpp"

namespace fenceguard {

// The answer, or the fault as an exception. Blocks the calling thread. A Done that is dropped without an
// answer counts as OutcomeUnknown.
template <class T, class Call>
[[nodiscard]] T wait_for(Call&& call) {
  auto promise = std::make_shared<std::promise<Outcome<T>>>();
  auto future = promise->get_future();
  // The Done alone owns the promise, so that dropping it breaks the wait.
  std::forward<Call>(call)(Done<T>{
      [promise = std::move(promise)](Outcome<T> outcome) { promise->set_value(std::move(outcome)); }});
  try {
    return future.get().value_or_raise();
  } catch (const std::future_error&) {
    throw OutcomeUnknown("the call ended without an answer");
  }
}

}  // namespace fenceguard
