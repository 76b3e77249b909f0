#pragma once

// The rule: is this claim still good against what the resource has seen? judge() is pure: no clock, no
// storage, no lock. The caller must make its answer and the write one atomic step; a judgement that is acted
// on later is the very race that fencing is meant to prevent.
//
// No other C++ code compares tokens. The SQL and Lua twins of this function are held to it by the shared
// table of cases, tests/judge_cases.tsv.
//
// Method: M. Kleppmann, 'How to do distributed locking' (2016), widened by the holder (a source can issue one
// number twice), by sequences, by revoked fences and by the floor.

#include <cstdint>
#include <optional>
#include <string_view>

#include "guard/claim.hpp"

namespace fenceguard {

enum class Verdict {
  admitted,   // go ahead
  duplicate,  // this sequence took effect before; nothing is to be written
  stale,  // a newer token was seen, the fence was closed, or the holder's own later write overtook this one
  conflict,  // another holder uses the same number: the source issued it twice
};

// The word on the wire, in SQL, in metrics and in logs.
[[nodiscard]] const char* to_string(Verdict verdict) noexcept;
[[nodiscard]] std::optional<Verdict> parse_verdict(std::string_view word) noexcept;

// What the guard remembers per resource.
struct Fence {
  Token token;
  Holder holder;
  std::optional<Sequence> sequence;
  bool closed = false;
  bool finished = false;  // closed by its own holder, which writes no more; where the storage notes that

  friend bool operator==(const Fence&, const Fence&) = default;
};

// The fence of one resource as found in one atomic step: its record if there is one, and the floor of its
// namespace. The floor is 0 in a namespace that has never been compacted or initialised above nothing.
struct FenceView {
  std::optional<Fence> record;
  std::int64_t floor = 0;

  // The highest token seen for the resource: the higher of record and floor; 0 if none.
  [[nodiscard]] std::int64_t highest() const noexcept;

  friend bool operator==(const FenceView&, const FenceView&) = default;
};

// The answer of judge().
struct Ruling {
  Verdict verdict = Verdict::stale;
  std::int64_t highest = 0;    // highest token of the resource after the ruling; 0 if none
  std::optional<Fence> fence;  // the resource's record after the ruling, if it has one
  bool changed = false;        // the record must be stored, durably, before any client is told the ruling
  bool raised = false;         // judge(): the token is higher than the fence was
  // The record that the token was raised over, as found in the step that raised it. Of judge(), and of
  // FenceStore::advance() where the storage tells.
  std::optional<Fence> overtaken{};
};

// A record where it lies, for callers that keep many and do not want to copy one to have it judged.
struct FenceRef {
  Token token;
  std::string_view holder;
  std::optional<Sequence> sequence;
  bool closed = false;
  bool finished = false;
};

// The verdict alone: the heart of judge(), which adds what is to be remembered.
[[nodiscard]] Verdict judge_verdict(const std::optional<FenceRef>& record, std::int64_t floor,
                                    const Claim& claim) noexcept;

// Judges a claim for a write that is about to be applied in the same atomic step.
[[nodiscard]] Ruling judge(const FenceView& view, const Claim& claim);

// What stays of an admitted ruling when the storage itself then refuses the write (a failed precondition, a
// constraint): the token, not the sequence. REQUIRES: judge(view, claim) was admitted.
[[nodiscard]] Ruling judge_refused_write(const FenceView& view, const Claim& claim);

// The jump bound of this claim: jump_max, or 0 (none) for a token that the guard's own source granted.
[[nodiscard]] std::int64_t jump_bound(const Claim& claim, std::int64_t jump_max) noexcept;

// True if the claim would raise a fence by more than its jump bound above the highest token seen in the
// namespace, floor included. Such a claim is refused and moves nothing, so that one absurd number of a client
// cannot shut all others out.
[[nodiscard]] bool is_implausible(const Claim& claim, std::int64_t namespace_highest,
                                  std::int64_t jump_max) noexcept;

}  // namespace fenceguard
