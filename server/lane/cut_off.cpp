#include "server/lane/cut_off.hpp"

#include <utility>

#include "guard/support/wait_for.hpp"
#include "server/lane/store_call.hpp"

namespace fenceguard::proxy {

void HolderCutOff::begin(HolderFencer& fencer) {
  if (pending_ == nullptr)
    throw InvalidInput("--fence-method: this state cannot keep what is pending: use --state sqlite:PATH");
  fencer_ = &fencer;
}

void HolderCutOff::forget_pending() {
  if (pending_ != nullptr) (void)wait_for<bool>([&](Done<bool> done) { pending_->waive(std::move(done)); });
}

void HolderCutOff::run(const CutOff& call, Done<bool> done) noexcept {
  const auto answer = [this, call, done = std::move(done)](const Outcome<bool>& outcome) noexcept {
    if (!outcome.ok()) return done(outcome);
    call_store(done, [&] { pending_->settle(call.resource, call.old_token, done); });
  };
  call_store(answer, [&] { fencer_->cut_off(call.resource, call.old_token, call.new_token, answer); });
}

void HolderCutOff::stop() {
  if (fencer_ != nullptr) fencer_->stop();
}

}  // namespace fenceguard::proxy
