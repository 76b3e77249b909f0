#include "adapters/http/lane_pass.hpp"

namespace fenceguard::proxy {

LanePass::~LanePass() {
  if (!is_inside_) return;
  try {
    (void)lanes_.leave(ticket_, Ending::unknown, [](const Left&) {});
  } catch (...) {
    // The lane stays as it is: closed is better than open.
  }
}

std::optional<Entry> LanePass::enter(Kind kind, std::vector<Claim> claims, http::Stream& stream) {
  loop_ = &stream.loop();
  is_write_ = kind == Kind::write;
  ticket_ = lanes_.new_ticket();
  // Told on any thread, perhaps before enter() has returned.
  auto entry = lanes_.enter({ticket_, kind, std::move(claims)}, [this](Entry told) {
    entry_ = std::move(told);
    loop_->post([this] {
      is_told_ = true;
      wakeup_.wake();
    });
  });
  if (entry) take_entry(*entry);
  return entry;
}

http::Task<std::optional<Entry>> LanePass::wait_entered(http::Stream& stream) {
  stream.watch([this] { client_gone(); });
  while (!is_told_ && !is_withdrawn_) co_await wakeup_.wait();
  if (is_told_) take_entry(*entry_);
  co_await stream.stop_watching();
  if (is_withdrawn_) co_return std::nullopt;
  co_return std::move(*entry_);
}

void LanePass::take_entry(const Entry& entry) noexcept {
  is_inside_ = is_write_ && std::holds_alternative<Entered>(entry);
}

void LanePass::client_gone() {
  if (is_told_ || is_withdrawn_) return;
  // Where it comes too late, the answer is on its way.
  is_withdrawn_ = lanes_.withdraw(ticket_);
  if (is_withdrawn_) wakeup_.wake();
}

bool LanePass::leave(Ending ending) {
  is_inside_ = false;
  is_told_ = false;
  auto left = lanes_.leave(ticket_, ending, [this](Left told) {
    fault_ = std::move(told.fault);
    loop_->post([this] {
      is_told_ = true;
      wakeup_.wake();
    });
  });
  if (left) fault_ = std::move(left->fault);
  return left.has_value();
}

http::Task<void> LanePass::wait_left() {
  while (!is_told_) co_await wakeup_.wait();
}

}  // namespace fenceguard::proxy
