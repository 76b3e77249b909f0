#pragma once

// Calls on a Committer in two lines: a function that runs in the shared transaction, and a Done for its
// answer.

#include <memory>
#include <optional>
#include <utility>

#include "adapters/sqlite/file/committer.hpp"
#include "guard/support/wait_for.hpp"

namespace fenceguard::sqlite {

// Whether a work can be done before the namespace was initialised.
enum class Needs { namespace_row, nothing };

template <class T, class Apply>
class Call : public Work {
 public:
  Call(Needs needs, std::size_t bytes, Apply apply, Done<T> done)
      : needs_{needs}, bytes_{bytes}, apply_{std::move(apply)}, done_{std::move(done)} {}
  void apply(FenceTransaction& transaction) override { outcome_.emplace(apply_(transaction)); }
  void finish(const Fault* fault) override {
    auto outcome = fault != nullptr ? Outcome<T>{*fault} : std::move(*outcome_);
    try {
      done_(std::move(outcome));
    } catch (...) {
      // This caller has had its answer, and its callback threw. The others wait for theirs.
    }
  }
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }
  [[nodiscard]] bool needs_namespace() const override { return needs_ == Needs::namespace_row; }

 private:
  Needs needs_;
  std::size_t bytes_;
  Apply apply_;
  Done<T> done_;
  std::optional<Outcome<T>> outcome_;
};

// apply(FenceTransaction&) answers a T, a Fault (the rest of the transaction goes on), or throws. It may run
// twice.
template <class T, class Apply>
void submit(Committer& committer, Needs needs, Apply apply, Done<T> done, std::size_t bytes = 0) {
  committer.submit(std::make_unique<Call<T, Apply>>(needs, bytes, std::move(apply), std::move(done)));
}

// The same, and waits until it is durable. Throws as wait_for().
template <class T, class Apply>
T submit_and_wait(Committer& committer, Needs needs, Apply apply) {
  return wait_for<T>([&](Done<T> done) { submit<T>(committer, needs, apply, std::move(done)); });
}

}  // namespace fenceguard::sqlite
