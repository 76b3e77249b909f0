#pragma once

// LanePermit: one operation's way through its lane, for a coroutine: in, with a wait where one is needed, and
// out. A write that has entered and whose end was not reported goes out as unknown.
//
// Thread safety: the loop's thread only.

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
  // withdrawn. An answer that is on its way to here, to a loop that goes on, ends the process.
  ~LanePermit();
  LanePermit(const LanePermit&) = delete;
  LanePermit& operator=(const LanePermit&) = delete;

  // Asks to enter. Nothing: wait_entered() tells.
  [[nodiscard]] std::optional<Entry> enter(Kind kind, std::vector<Claim> claims, http::Stream& stream);
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
  template <class Told>
  void take_answer(std::optional<Told>& taken, Told told) noexcept;
  [[nodiscard]] bool has_answer() const;
  void end_waiting();
  void take_entry(const Entry& entry) noexcept;
  void client_gone();

  LaneScheduler& lanes_;
  net::Loop* loop_ = nullptr;
  net::Wakeup wakeup_;
  Ticket ticket_ = 0;
  std::optional<Entry> entry_;     // told by another thread
  std::optional<LeftEvent> left_;  // likewise
  std::optional<Fault> fault_;
  bool is_write_ = false;
  bool is_waiting_ = false;  // for an answer of the lanes
  bool is_leaving_ = false;  // and that is the answer to leave()
  bool is_told_ = false;
  bool is_withdrawn_ = false;
  bool is_inside_ = false;
  bool is_reading_ = false;
};

}  // namespace fenceguard::proxy
