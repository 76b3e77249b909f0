#pragma once

// ReplyQueue: what a client was not answered yet, in the order of its requests. Each entry becomes ready by
// itself, in whatever order, and leaves when all before it have left. Writes that follow each other under one
// claim are gathered in one batch, which is the last entry until something else is added. What Redis says
// that it did not run is sent again, as long as nothing that came after it has been done.
//
// What Redis says of its own accord (the messages of subscriptions) is no reply: it does not pass here, but
// from Relay::replied() to the client.
//
// A pure state machine: replies in, calls of its ports out. Not thread-safe.

#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "server/resp/command/command_validation.hpp"
#include "server/resp/replies/shared_commands.hpp"

namespace fenceguard::resp {

class ReplyQueue {
 public:
  explicit ReplyQueue(const RelayContext& context) : context_{context} {}

  // An answer that is known.
  void answer(std::string_view bytes);
  // Adds what is to be sent, and sends it.
  void send(std::unique_ptr<PendingReply> reply);
  // Adds a command to the batch that is gathered, if it may run in one step with those in it, or begins
  // another batch.
  void gather(const redis::CommandTable::Facts& facts, redis::Arguments words, Needs needs,
              const CommandKeys& keys);
  // Sends the batch that is gathered.
  void flush();

  // Of the entry that awaits it on this channel. False: there is none.
  bool replied(Channel channel, std::string_view reply);
  bool lost(Channel channel, bool was_sent, std::string_view why);
  void woken();

  // Of one server of a cluster at a time, so that the order is kept. False: not yet.
  [[nodiscard]] bool may_send(int slot);
  // True when all before was answered, so that what follows may go another way; else nothing is to be taken
  // before that.
  [[nodiscard]] bool is_quiet();
  // A request is taken now: whatever waited for quiet is offered again.
  void stop_waiting() noexcept { wants_quiet_ = false; }
  // No request is to be taken now.
  [[nodiscard]] bool is_full() const noexcept;

  [[nodiscard]] bool empty() const noexcept { return pending_.empty() && !batch_; }
  [[nodiscard]] std::size_t size() const noexcept { return pending_.size(); }
  // What is awaited waits for what other clients do.
  [[nodiscard]] bool awaits_others() const noexcept;
  // Likewise, and nothing is lost if it is never answered.
  [[nodiscard]] bool may_be_dropped() const noexcept {
    return awaits_others() && !pending_.front()->writes();
  }
  [[nodiscard]] bool awaits_judged_write(Channel channel) const noexcept;
  // Those of writes that may take effect, or may still be sent.
  [[nodiscard]] std::vector<HeldClaimPtr> claims_under_way() const;

 private:
  using Entry = std::unique_ptr<PendingReply>;
  using State = PendingReply::State;

  [[nodiscard]] std::deque<Entry>::iterator awaited(Channel channel) noexcept;
  void settle(std::deque<Entry>::iterator entry, std::string_view answer);
  void note_not_run(std::deque<Entry>::iterator entry, std::string_view reply);
  void repeat();

  const RelayContext& context_;
  std::deque<Entry> pending_;
  std::unique_ptr<BatchReply> batch_;  // gathered, and not sent yet
  int server_ = -1;                    // of a cluster, that of what is awaited
  std::size_t not_run_ = 0;
  std::size_t bytes_ = 0;  // of requests and answers in memory
  std::size_t reply_bytes_ =
      64 * 1024;  // as large as the last were; before the first is seen, most are smaller
  bool is_asleep_ = false;
  bool is_repeat_awaited_ = false;  // it may be on another connection than what would be sent now
  bool wants_quiet_ = false;
};

}  // namespace fenceguard::resp
