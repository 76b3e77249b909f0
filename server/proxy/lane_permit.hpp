#pragma once

// LanePermit: one operation's way through its lane, for a coroutine: in, with a wait where one is needed, and
// out. A write that has entered and whose end was not reported goes out as unknown.
//
// The lanes answer on any thread, perhaps when the permit has ended. So they answer to a Reply, which
// outlives it:
//   told, then the loop looks: the permit takes the answer on the loop's thread.
//   told, the permit ends, the loop looks or has stopped: the reply leaves the lane where it had entered.
//   the permit ends, then told: likewise, on the thread that told.
// The permit ends on the loop's thread, or when the loop runs no more.
//
// Thread safety: the loop's thread only.

#include <memory>
#include <optional>

#include "server/http/stream.hpp"
#include "server/lane/lane_scheduler.hpp"
#include "server/net/loop.hpp"
#include "server/net/wakeup.hpp"

namespace fenceguard::proxy {

class LanePermit {
 public:
  explicit LanePermit(LaneScheduler& lanes) : lanes_{lanes} {}
  // If a write is still in the lane, nothing can deliver it any more: REQUIRES that. What waits to enter is
  // withdrawn, or leaves as soon as it has entered.
  ~LanePermit();
  LanePermit(const LanePermit&) = delete;
  LanePermit& operator=(const LanePermit&) = delete;

  // Asks to enter. Nothing: wait_entered() tells.
  [[nodiscard]] std::optional<Entry> enter(Kind kind, std::vector<Claim> claims, net::Loop& loop);
  // An operation that has entered by this ticket, and has not left.
  void adopt(Ticket ticket, bool is_write, net::Loop& loop) noexcept;
  // Nothing: the client went away, and the operation is withdrawn.
  [[nodiscard]] net::Task<std::optional<Entry>> wait_entered(http::Stream& stream);

  // The write is over. False: wait_left() must be called before the client is told. REQUIRES: it has entered.
  [[nodiscard]] bool leave(Ending ending);
  [[nodiscard]] net::Task<void> wait_left();
  // What the fence says now of a read that has entered. Once it is not admitted, the upstream may have
  // answered with what a newer token wrote.
  [[nodiscard]] Ruling judge_read() const { return lanes_.judge_read(ticket_); }
  // A write has entered and has not left.
  [[nodiscard]] bool is_inside() const noexcept { return is_inside_; }
  // What became of recording a sequence, once it left.
  [[nodiscard]] const std::optional<Fault>& fault() const noexcept { return fault_; }

 private:
  class Reply;

  void take_reply(Reply& reply);
  void take_entry(const Entry& entry) noexcept;
  void client_gone();

  LaneScheduler& lanes_;
  net::Loop* loop_ = nullptr;
  net::Wakeup wakeup_;
  Ticket ticket_ = 0;
  std::shared_ptr<Reply> reply_;
  std::optional<Entry> entry_;
  std::optional<Fault> fault_;
  bool is_write_ = false;
  bool is_entering_ = false;  // waits to
  bool is_told_ = false;
  bool is_withdrawn_ = false;
  bool is_inside_ = false;
  bool is_reading_ = false;
};

}  // namespace fenceguard::proxy
