#include "server/proxy/lane_permit.hpp"

#include <exception>
#include <mutex>
#include <utility>

namespace fenceguard::proxy {

class LanePermit::Reply : public std::enable_shared_from_this<Reply> {
 public:
  Reply(LanePermit& permit, Kind kind)
      : lanes_{permit.lanes_},
        ticket_{permit.ticket_},
        is_write_{kind == Kind::write},
        permit_{&permit},
        loop_{permit.loop_} {}
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  // No permit is left to send a write that entered.
  ~Reply() {
    if (!entry_ || !std::holds_alternative<EnteredEvent>(*entry_)) return;
    if (is_write_) {
      (void)lanes_.leave(ticket_, Ending::unknown, [](const LeftEvent&) {});
    } else {
      lanes_.end_read(ticket_);
    }
  }

  // Any thread, once for each question.
  void tell(Entry entry) noexcept { tell(entry_, std::move(entry)); }
  void tell(LeftEvent left) noexcept { tell(left_, std::move(left)); }

  // The permit ends. What is told later stays here.
  void abandon() noexcept {
    const std::scoped_lock lock{mutex_};
    permit_ = nullptr;
    loop_ = nullptr;
  }

  // Of an answer that has been told, once.
  [[nodiscard]] std::optional<Entry> take_entry() noexcept { return std::exchange(entry_, std::nullopt); }
  [[nodiscard]] std::optional<LeftEvent> take_left() noexcept { return std::exchange(left_, std::nullopt); }

 private:
  template <class Answer>
  void tell(std::optional<Answer>& place, Answer answer) noexcept {
    const std::scoped_lock lock{mutex_};
    place = std::move(answer);
    if (loop_ == nullptr) return;
    loop_->post([reply = shared_from_this()] {
      if (reply->permit_ != nullptr) reply->permit_->take_reply(*reply);
    });
  }

  LaneScheduler& lanes_;
  const Ticket ticket_;
  const bool is_write_;
  LanePermit* permit_;  // the loop's thread only
  std::mutex mutex_;    // guards the rest until it is told
  net::Loop* loop_;     // null: no permit is there, and perhaps no loop
  std::optional<Entry> entry_;
  std::optional<LeftEvent> left_;
};

LanePermit::~LanePermit() {
  if (is_entering_) (void)lanes_.withdraw(ticket_);
  if (reply_) reply_->abandon();
  if (is_inside_) (void)lanes_.leave(ticket_, Ending::unknown, [](const LeftEvent&) {});
  if (is_reading_) lanes_.end_read(ticket_);
}

void LanePermit::take_reply(Reply& reply) {
  if (is_entering_) {
    is_entering_ = false;
    entry_ = reply.take_entry();
    take_entry(*entry_);
  } else {
    fault_ = std::move(reply.take_left()->fault);
  }
  is_told_ = true;
  wakeup_.wake();
}

std::optional<Entry> LanePermit::enter(Kind kind, std::vector<Claim> claims, net::Loop& loop) {
  loop_ = &loop;
  is_write_ = kind == Kind::write;
  ticket_ = lanes_.new_ticket();
  reply_ = std::make_shared<Reply>(*this, kind);
  // Told on any thread, perhaps before enter() has returned.
  auto entry = lanes_.enter({ticket_, kind, std::move(claims)},
                            [reply = reply_](Entry told) { reply->tell(std::move(told)); });
  is_entering_ = !entry;
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
  is_entering_ = false;
  wakeup_.wake();
}

bool LanePermit::leave(Ending ending) {
  is_told_ = false;
  // What was adopted has no sequence to be recorded, and so is answered at once.
  std::function<void(LeftEvent)> tell = [](const LeftEvent&) {};
  if (reply_) tell = [reply = reply_](LeftEvent told) { reply->tell(std::move(told)); };
  auto left = lanes_.leave(ticket_, ending, std::move(tell));
  is_inside_ = false;
  if (left) fault_ = std::move(left->fault);
  return left.has_value();
}

net::Task<void> LanePermit::wait_left() {
  while (!is_told_) co_await wakeup_.wait();
}

}  // namespace fenceguard::proxy
