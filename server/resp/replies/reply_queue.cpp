#include "server/resp/replies/reply_queue.hpp"

#include <algorithm>

#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

constexpr int repeats_max = 8;
constexpr int first_pause_ms = 2;  // doubled with each attempt

// By which a server says that it ran nothing, and may do so elsewhere or later.
bool is_not_run(std::string_view reply) {
  return reply.starts_with("-NOSCRIPT") || reply.starts_with("-MOVED ") || reply.starts_with("-ASK ") ||
         reply.starts_with("-TRYAGAIN");
}

// An answer that is known, behind others that are not.
class ReadyReply final : public PendingReply {
 public:
  ReadyReply(const RelayContext& context, int slot, std::string_view answer)
      : PendingReply{context, Channel::shared, slot} {
    answer_ = answer;
  }
  std::size_t send(bool /*again*/) override { return 0; }
  [[nodiscard]] Answer replied(std::string_view /*reply*/) override { return std::nullopt; }
  std::string& bytes() noexcept { return answer_; }
};

}  // namespace

void ReplyQueue::answer(std::string_view bytes) {
  flush();
  if (pending_.empty()) return context_.client.answer(bytes);
  if (pending_.back()->state_ != State::ready) {
    pending_.push_back(std::make_unique<ReadyReply>(context_, -1, std::string_view{}));
    pending_.back()->state_ = State::ready;
  }
  static_cast<ReadyReply&>(*pending_.back()).bytes().append(bytes);
  pending_.back()->bytes_ += bytes.size();
  bytes_ += bytes.size();
}

void ReplyQueue::send(std::unique_ptr<PendingReply> reply) {
  flush();
  auto& entry = *pending_.emplace_back(std::move(reply));
  entry.bytes_ = entry.send(false);
  bytes_ += entry.bytes_;
}

void ReplyQueue::gather(const redis::CommandTable::Facts& facts, redis::Arguments words, Needs needs,
                        const CommandKeys& keys) {
  const auto claim = needs.claims.empty() ? nullptr : needs.claims.front();
  // Of several resources each command stands for itself.
  const bool may_join = batch_ && (claim || needs.unclaimed.size() == 1);
  if (may_join && batch_->batch().claim() == claim && batch_->batch().unclaimed() == needs.unclaimed &&
      batch_->batch().take(facts, words, keys.names))
    return;
  flush();
  auto batch = claim ? CommandBatch{claim} : CommandBatch{std::move(needs.unclaimed)};
  (void)batch.take(facts, words, keys.names);
  batch_ = std::make_unique<BatchReply>(context_, std::move(batch), keys.slot);
}

void ReplyQueue::flush() {
  if (batch_) send(std::exchange(batch_, nullptr));
}

bool ReplyQueue::may_send(int slot) {
  if (!context_.redis.is_cluster()) return true;
  const int server = context_.redis.server_of(slot);
  if (server == server_) return true;
  if (!is_quiet()) return false;
  server_ = server;
  return true;
}

bool ReplyQueue::is_quiet() {
  flush();
  wants_quiet_ = !pending_.empty();
  return !wants_quiet_;
}

bool ReplyQueue::is_full() const noexcept {
  const auto& options = context_.options;
  const auto size = pending_.size();
  if (size == 0) return false;
  const bool is_repeating = not_run_ > 0 || is_repeat_awaited_;
  const auto& last = *pending_.back();
  return is_repeating || wants_quiet_ || (last.is_blocking() && last.state_ != State::ready) ||
         size >= options.pending_max || bytes_ + size * reply_bytes_ >= options.pending_bytes_max;
}

bool ReplyQueue::awaits_others() const noexcept {
  return !pending_.empty() && pending_.front()->awaits_others();
}

bool ReplyQueue::awaits_judged_write(Channel channel) const noexcept {
  return std::ranges::any_of(pending_, [&](const Entry& entry) {
    return entry->channel_ == channel && entry->awaits_judged_write();
  });
}

std::vector<HeldClaimPtr> ReplyQueue::claims_under_way() const {
  std::vector<HeldClaimPtr> claims;
  for (const auto& entry : pending_) entry->add_claims(claims);
  return claims;
}

std::deque<ReplyQueue::Entry>::iterator ReplyQueue::awaited(Channel channel) noexcept {
  return std::ranges::find_if(pending_, [&](const Entry& entry) {
    return entry->state_ == State::awaited && entry->channel_ == channel;
  });
}

void ReplyQueue::settle(std::deque<Entry>::iterator entry, std::string_view answer) {
  bytes_ -= (*entry)->bytes_;
  if (entry != pending_.begin()) {
    auto ready = std::make_unique<ReadyReply>(context_, (*entry)->slot_, answer);
    ready->state_ = State::ready;
    ready->has_run_ = (*entry)->has_run_;
    ready->bytes_ = answer.size();
    bytes_ += answer.size();
    *entry = std::move(ready);
    return;
  }
  context_.client.answer(answer);
  pending_.pop_front();
  for (; !pending_.empty() && pending_.front()->state_ == State::ready; pending_.pop_front()) {
    context_.client.answer(pending_.front()->answer_);
    bytes_ -= pending_.front()->bytes_;
  }
}

bool ReplyQueue::replied(Channel channel, std::string_view reply) {
  const auto entry = awaited(channel);
  if (entry == pending_.end()) return false;
  if (channel == Channel::shared) {
    is_repeat_awaited_ = false;
    reply_bytes_ = std::max(reply.size(), reply_bytes_ - reply_bytes_ / 16);
  }
  if ((*entry)->may_repeat() && is_not_run(reply)) {
    note_not_run(entry, reply);
  } else {
    (*entry)->has_run_ = true;
    if (const auto answer = (*entry)->replied(reply)) settle(entry, *answer);
  }
  if (not_run_ > 0) repeat();
  return true;
}

bool ReplyQueue::lost(Channel channel, bool was_sent, std::string_view why) {
  const auto entry = awaited(channel);
  if (entry == pending_.end()) return false;
  is_repeat_awaited_ = false;
  // It may have been done: what stands before it must not be done after it.
  (*entry)->has_run_ = was_sent;
  if (const auto answer = (*entry)->lost(was_sent, why)) settle(entry, *answer);
  if (not_run_ > 0) repeat();
  return true;
}

void ReplyQueue::note_not_run(std::deque<Entry>::iterator entry, std::string_view reply) {
  auto& pending = **entry;
  if (++pending.attempts_ >= repeats_max)
    return settle(entry, pending.fail({FaultKind::unavailable,
                                       "Redis did not run it however often it was sent; try again"}));
  pending.state_ = State::not_run;
  ++not_run_;
  is_asleep_ = false;
  if (reply.starts_with("-MOVED ") || reply.starts_with("-ASK "))
    context_.redis.redirect(pending.slot_, error_of(reply));
  if (reply.starts_with("-TRYAGAIN") || pending.attempts_ > 2) {
    is_asleep_ = true;
    context_.redis.sleep(first_pause_ms << pending.attempts_);
  }
}

void ReplyQueue::woken() {
  is_asleep_ = false;
  if (not_run_ > 0) repeat();
  if (!pending_.empty()) pending_.front()->woken();
}

// Once all that was sent is answered: the oldest alone, the others behind it. One that a later request has
// overtaken would undo what that one did.
void ReplyQueue::repeat() {
  if (is_asleep_ || awaited(Channel::shared) != pending_.end()) return;
  const auto entry =
      std::ranges::find(pending_, State::not_run, [](const Entry& one) { return one->state_; });
  --not_run_;
  auto& pending = **entry;
  pending.state_ = State::awaited;
  const bool is_overtaken = std::any_of(entry, pending_.end(), [&](const Entry& later) {
    return later->has_run_ &&
           (!context_.redis.is_cluster() || later->slot_ == pending.slot_ || later->slot_ < 0);
  });
  if (is_overtaken) {
    context_.redis.redirect(pending.slot_, {});  // an ASK that was meant for it is not for what follows
    (void)lost(Channel::shared, false,
               "Redis did not run it, and what was sent after it has been done; nothing was written");
    return;
  }
  is_repeat_awaited_ = true;
  (void)pending.send(true);
}

}  // namespace fenceguard::resp
