#pragma once

// PendingReply: one request that was taken, or one batch of them, until its client can be answered. Each kind
// knows what it sends to Redis and by which replies it becomes ready; ReplyQueue keeps them in order.
//
// shared_commands.hpp has those that are sent on the shared connections, own_command.hpp the one that needs a
// connection of the client's own, watched_transaction.hpp the transactions.
//
// Not thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/resp/replies/relay_options.hpp"

namespace fenceguard::resp {

class PendingReply {
 public:
  // What the client gets, in the reply or in this object; nothing: it is not ready yet.
  using Answer = std::optional<std::string_view>;

  virtual ~PendingReply() = default;
  PendingReply(const PendingReply&) = delete;
  PendingReply& operator=(const PendingReply&) = delete;

  // Sends it, and returns how large the request is. again: Redis said that it did not run it.
  virtual std::size_t send(bool again) = 0;
  [[nodiscard]] virtual Answer replied(std::string_view reply) = 0;
  // A reply will not come. was_sent: Redis may have the request.
  [[nodiscard]] virtual Answer lost(bool was_sent, std::string_view why);
  // After RedisPort::sleep().
  virtual void woken() {}
  // Nothing was written, or that is not known.
  [[nodiscard]] virtual std::string_view fail(const Fault& fault);

  // It has done something where Redis has run it.
  [[nodiscard]] virtual bool writes() const noexcept { return false; }
  // Where Redis says that it did not run it, the queue sends it again.
  [[nodiscard]] virtual bool may_repeat() const noexcept { return false; }
  // No later request is taken before this one is ready.
  [[nodiscard]] virtual bool is_blocking() const noexcept { return false; }
  // It waits for what other clients do, so that it may never be ready.
  [[nodiscard]] virtual bool awaits_others() const noexcept { return false; }
  // A write under a claim was sent, and Redis has not answered it.
  [[nodiscard]] virtual bool awaits_judged_write() const noexcept { return false; }
  // Appends the claims under which it may still write.
  virtual void add_claims(std::vector<HeldClaimPtr>& /*claims*/) const {}

 protected:
  enum class State : std::uint8_t { awaited, ready, not_run };

  PendingReply(const RelayContext& context, Channel channel, int slot)
      : context_{context}, channel_{channel}, slot_{slot} {}
  [[nodiscard]] State state() const noexcept { return state_; }

  const RelayContext& context_;
  const Channel channel_;
  int slot_;            // of its keys; negative: it has none
  std::string answer_;  // where it is not Redis's

 private:
  friend class ReplyQueue;

  // The queue's.
  State state_ = State::awaited;
  bool has_run_ = false;  // Redis has done it
  std::uint8_t attempts_ = 0;
  std::size_t bytes_ = 0;  // of the request, or of the answer once it is ready
};

}  // namespace fenceguard::resp
