#pragma once

// ReplyQueue: what a client was not answered yet, in the order of its requests: what was sent on the shared
// connections, and what is known already but stands behind it. What Redis says that it did not do is sent
// again, as long as nothing that came after it has been done.
//
// A pure state machine: replies in, calls of its port out. Not thread-safe.

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/resp/relay/command_batch.hpp"
#include "server/resp/relay/port.hpp"

namespace fenceguard::resp {

// One request, or the commands of one run.
struct PendingReply {
  enum class Kind : std::uint8_t { local, passed, run, advance, show };
  enum class State : std::uint8_t { awaited, known, not_run };

  Kind kind = Kind::local;
  State state = State::awaited;
  bool writes = false;
  bool is_plain_read = false;  // of a client without claims
  bool has_run = false;        // Redis has done it
  std::uint8_t attempts = 0;
  int slot = -1;
  HeldClaimPtr claim{};  // of an advance; of a run it is with the run
  CommandBatch run{};
  ScriptCall call{};  // of all but local and passed
  std::string
      text{};  // the answer, once known; of what passed, the request, where it may have to be repeated
  std::size_t bytes = 0;  // of the request, or of the answer once known

  [[nodiscard]] bool is_awaited_write() const noexcept {
    return state == State::awaited && kind == Kind::run && writes && run.claim();
  }
};

class ReplyQueue {
 public:
  // advanced: what became of an advance, before its client is answered.
  using Advanced = std::function<void(const HeldClaimPtr& claim, const BatchResult& result)>;
  ReplyQueue(RelayPort& port, RelayObserver& observer, Advanced advanced)
      : port_{port}, observer_{observer}, advanced_{std::move(advanced)} {}

  // An answer that is known.
  void answer(std::string_view bytes);
  // What is to be sent on the shared connections. request: of what passes.
  void send(PendingReply reply, std::string_view request = {});

  void replied(std::string_view reply);
  void lost(bool was_sent, std::string_view why);
  void woken();

  [[nodiscard]] bool empty() const noexcept { return owed_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return owed_.size(); }
  // Runs that write were sent, and not answered.
  [[nodiscard]] bool awaits_judged_write() const noexcept;
  // Theirs, and those of advances.
  [[nodiscard]] std::vector<HeldClaimPtr> awaited_claims() const;
  // Something is to be sent again: nothing else may be sent meanwhile.
  [[nodiscard]] bool is_repeating() const noexcept { return not_run_ > 0 || is_repeat_awaited_; }
  // Of requests and answers in memory, and of what is to come, were every reply as large as the last ones.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_ + owed_.size() * reply_bytes_; }

 private:
  [[nodiscard]] PendingReply* awaited() noexcept;
  void settle(PendingReply& reply, std::string_view bytes);
  void release_known();
  void end_run(PendingReply& reply, std::string_view bytes);
  void end_advance(PendingReply& reply, std::string_view bytes);
  void end_show(PendingReply& reply, std::string_view bytes);
  void end_not_run(PendingReply& reply, std::string_view bytes);
  void end_fault(PendingReply& reply, const Fault& fault);
  void tell(const char* operation, const Claim& claim, const BatchResult& result, std::size_t count);
  void repeat();
  void send_again(PendingReply& reply);

  RelayPort& port_;
  RelayObserver& observer_;
  const Advanced advanced_;
  std::deque<PendingReply> owed_;
  std::size_t not_run_ = 0;
  std::size_t bytes_ = 0;
  std::size_t reply_bytes_ = 64 * 1024;  // before the first is seen, most are smaller
  bool is_asleep_ = false;
  bool is_repeat_awaited_ = false;  // it may be on another connection than what would be sent now
};

}  // namespace fenceguard::resp
