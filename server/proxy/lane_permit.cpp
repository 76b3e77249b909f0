#include "server/proxy/lane_permit.hpp"

#include <exception>
#include <mutex>
#include <thread>

namespace fenceguard::proxy {
namespace {

// Held while an answer is brought to a pass and its loop, which both may end once they have it.
std::mutex telling;

}  // namespace

LanePermit::~LanePermit() {
  if (is_waiting_) end_waiting();
  if (is_inside_) (void)lanes_.leave(ticket_, Ending::unknown, [](const LeftEvent&) {});
  if (is_reading_) lanes_.end_read(ticket_);
}

// No coroutine waits for the answer any more.
void LanePermit::end_waiting() {
  if (!is_leaving_ && lanes_.withdraw(ticket_)) return;
  // The answer comes here. A loop that goes on would find nothing in this place any more.
  if (!loop_->context().stopped()) std::terminate();
  while (!has_answer()) std::this_thread::yield();
  if (!is_leaving_) take_entry(*entry_);
}

// On any thread. Once it is posted the pass may be gone.
template <class Told>
void LanePermit::take_answer(std::optional<Told>& taken, Told told) noexcept {
  const std::scoped_lock lock{telling};
  taken = std::move(told);
  loop_->post([this] {
    is_told_ = true;
    is_waiting_ = false;
    if (!is_leaving_) take_entry(*entry_);
    wakeup_.wake();
  });
}

bool LanePermit::has_answer() const {
  const std::scoped_lock lock{telling};
  return is_leaving_ ? left_.has_value() : entry_.has_value();
}

std::optional<Entry> LanePermit::enter(Kind kind, std::vector<Claim> claims, http::Stream& stream) {
  loop_ = &stream.loop();
  is_write_ = kind == Kind::write;
  ticket_ = lanes_.new_ticket();
  // Told on any thread, perhaps before enter() has returned.
  auto entry = lanes_.enter({ticket_, kind, std::move(claims)},
                            [this](Entry told) { take_answer(entry_, std::move(told)); });
  is_waiting_ = !entry;
  if (entry) take_entry(*entry);
  return entry;
}

void LanePermit::adopt(Ticket ticket, bool is_write, net::Loop& loop) noexcept {
  loop_ = &loop;
  ticket_ = ticket;
  is_write_ = is_inside_ = is_write;
  is_reading_ = !is_write;
}

net::Task<std::optional<Entry>> LanePermit::wait_entered(http::Stream& stream) {
  std::exception_ptr thrown;
  try {
    stream.watch([this] { client_gone(); });
    while (!is_told_ && !is_withdrawn_) co_await wakeup_.wait();
  } catch (...) {
    thrown = std::current_exception();
  }
  co_await stream.stop_watching();
  if (thrown) std::rethrow_exception(thrown);
  if (is_withdrawn_) co_return std::nullopt;
  co_return std::move(*entry_);
}

void LanePermit::take_entry(const Entry& entry) noexcept {
  const bool is_in = std::holds_alternative<EnteredEvent>(entry);
  is_inside_ = is_write_ && is_in;
  is_reading_ = !is_write_ && is_in;
}

void LanePermit::client_gone() {
  if (is_told_ || is_withdrawn_) return;
  // Where it comes too late, the answer is on its way.
  is_withdrawn_ = lanes_.withdraw(ticket_);
  if (!is_withdrawn_) return;
  is_waiting_ = false;
  wakeup_.wake();
}

bool LanePermit::leave(Ending ending) {
  is_told_ = false;
  auto left = lanes_.leave(ticket_, ending, [this](LeftEvent told) { take_answer(left_, std::move(told)); });
  is_inside_ = false;
  is_leaving_ = is_waiting_ = !left;
  if (left) fault_ = std::move(left->fault);
  return !is_leaving_;
}

net::Task<void> LanePermit::wait_left() {
  while (!is_told_) co_await wakeup_.wait();
  fault_ = std::move(left_->fault);
}

}  // namespace fenceguard::proxy
