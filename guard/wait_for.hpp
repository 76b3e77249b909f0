#pragma once

// wait_for: calls what answers through a Done, and waits for the answer.
//   auto ruling = wait_for<Ruling>([&](Done<Ruling> done) { store.advance(claim, done); });

#include <future>
#include <memory>

#include "guard/error.hpp"

namespace fenceguard {

// The answer, or the fault as an exception. Blocks the calling thread.
template <class T, class Call>
[[nodiscard]] T wait_for(Call&& call) {
  auto promise = std::make_shared<std::promise<Outcome<T>>>();
  auto future = promise->get_future();
  std::forward<Call>(call)(Done<T>{[promise](Outcome<T> outcome) { promise->set_value(std::move(outcome)); }});
  return future.get().value_or_raise();
}

}  // namespace fenceguard
