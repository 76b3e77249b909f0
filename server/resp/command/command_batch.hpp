#pragma once

// CommandBatch: commands of one connection that follow each other under one claim, as one run of the guard's
// script (adapters/redis/lua/fences/guarded.lua): judged once, applied in one step, each standing for itself.
// How it is put, and what its answer means to the client. As redis::GuardedCall, but of bytes. Where clients
// may write without a claim, such commands are a run as well: of resources that have no fence.
//
// Not thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/redis/keys.hpp"
#include "adapters/redis/wire/commands.hpp"
#include "adapters/redis/wire/script.hpp"
#include "guard/error.hpp"
#include "guard/judge.hpp"
#include "server/resp/command/claims.hpp"

namespace fenceguard::resp {

// How a script is called: the words behind EVALSHA and its hash, or EVAL and its text.
struct ScriptCall {
  const redis::Script* script = nullptr;
  std::size_t words = 0;                     // in rest
  std::string rest{};                        // as they are sent
  std::size_t asked_at = std::string::npos;  // where in rest a '0' becomes '1' behind an ASK
};

// What came of a run.
struct BatchResult {
  enum class Kind {
    ruled,    // by the fence: verdict and highest
    fault,    // nothing was applied, or it is not known
    error,    // Redis's own, which is told as it is, or for want of a claim; nothing was applied
    not_run,  // nothing was done, and it may be sent again
  };
  Kind kind = Kind::fault;
  Verdict verdict = Verdict::stale;
  std::int64_t highest = 0;
  bool has_raised = false;
  Fault fault{FaultKind::unknown, "Redis answered with what is no ruling"};
};

// What the error means with which a script ended, and 'not_run' for one by which Redis says so.
[[nodiscard]] BatchResult result_of_error(std::string_view resource, std::string_view text);

// The claim's advance, as FENCE does it, and its answer.
[[nodiscard]] ScriptCall advance_call(const Claim& claim, const redis::Keys& keys, bool is_cluster,
                                      std::int64_t jump_max);
[[nodiscard]] BatchResult advance_result(const Claim& claim, std::string_view reply);

// Whether they have none: answers OK, or an error that unfenced_refusal() knows.
[[nodiscard]] ScriptCall no_fence_call(const Unclaimed& resources, const redis::Keys& keys, bool is_cluster);
// The resource that has one; nothing where the error says something else.
[[nodiscard]] std::optional<std::string_view> unfenced_refusal(std::string_view error);

class CommandBatch {
 public:
  CommandBatch() = default;
  // The claim's own sequence counts.
  explicit CommandBatch(HeldClaimPtr claim) : claim_{std::move(claim)} {}
  explicit CommandBatch(Unclaimed resources) : unclaimed_{std::move(resources)} {}

  // Whether a script can do the command and give its reply unchanged, but for what is put right here.
  [[nodiscard]] static bool can_take(const redis::CommandTable::Facts& facts, redis::Arguments words);

  // False: it is full, or the command must not run in one step with those that are in it.
  [[nodiscard]] bool take(const redis::CommandTable::Facts& facts, redis::Arguments words,
                          const std::vector<std::string_view>& keys);

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] bool writes() const noexcept { return writes_; }
  // Null: of a client without one.
  [[nodiscard]] const HeldClaimPtr& claim() const noexcept { return claim_; }
  [[nodiscard]] const Unclaimed& unclaimed() const noexcept { return unclaimed_; }

  // Once, when all are taken.
  [[nodiscard]] ScriptCall call(const redis::Keys& keys, bool is_cluster, std::int64_t jump_max);

  // Appends what the client gets, one reply for each command, if they were run, or one error for each
  // otherwise; for 'not_run' and 'fault' nothing.
  [[nodiscard]] BatchResult end(std::string_view reply, std::string& out) const;

 private:
  [[nodiscard]] bool is_one() const noexcept;
  [[nodiscard]] bool add_replies(std::string_view exact, std::string_view replies, std::string& out) const;
  void add_reply(std::size_t place, std::string_view reply, std::string& out) const;
  [[nodiscard]] BatchResult end_error(std::string_view text, std::string& out) const;
  [[nodiscard]] ScriptCall unclaimed_call(const redis::Keys& keys, bool is_cluster);

  HeldClaimPtr claim_;
  Unclaimed unclaimed_;
  std::size_t count_ = 0;
  std::size_t key_count_ = 0, word_count_ = 0;
  std::uint64_t nil_arrays_ = 0;  // a bit for each command whose nil is one of an array
  bool writes_ = false;
  bool has_written_freely_ = false;  // one of them writes whether there is memory or not
  std::string keys_, words_, layout_;
};

// The error for a refusal: 'STALE ...'.
[[nodiscard]] std::string refusal_text(const Claim& claim, Verdict verdict, std::int64_t highest);
[[nodiscard]] std::string fault_text(const Fault& fault);
// For a write without a claim to a resource that has a fence.
[[nodiscard]] std::string unclaimed_text(std::string_view resource);

}  // namespace fenceguard::resp
