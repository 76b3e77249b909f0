#pragma once

// The model: what a guarded resource is, said once more and independently of guard/, in as little code as it
// takes. Pure; includes nothing of the product. The search (search.hpp) asks it whether an order of
// operations explains what the clients were told.
//
// Beyond a fence and a value it knows one thing: a write that was let in may land later than the fence
// rose, as long as no operation with a higher token was admitted. So it remembers until when a write must
// have been asked to be such a one.

#include <cstdint>
#include <vector>

#include "tests/proof/checker/history.hpp"

namespace fenceguard::proof {

enum class Verdict : std::uint8_t { admitted, duplicate, stale, conflict };

struct State {
  std::int64_t token = 0;  // of the record; 0: there is none
  TextId holder = 0;
  std::int64_t sequence = -1;
  bool is_closed = false;
  // Behind a lane a sequence counts when its write's end is known, which is later than when it took effect.
  std::int64_t earlier_sequence = -1;
  std::int64_t sequence_known_by = 0;
  std::int64_t floor = 0;

  TextId value = 0;
  std::int64_t settled = 0;  // no write with a lower token is under way any more
  // The fence came to a token before what was let in below it was over: a write must have been asked by then.
  struct Passed {
    std::int64_t token;  // writes below it, and with closes those under it too
    bool closes;
    std::int64_t asked_by;
    friend bool operator==(const Passed&, const Passed&) = default;
  };
  std::vector<Passed> passed;

  [[nodiscard]] bool record_stands() const { return token > 0 && token >= floor; }
  [[nodiscard]] std::int64_t highest() const { return record_stands() ? token : floor; }
  friend bool operator==(const State&, const State&) = default;
};

struct ModelClaim {
  std::int64_t token;
  TextId holder;
  std::int64_t sequence;
};

[[nodiscard]] inline Verdict judge(const State& state, const ModelClaim& claim) {
  if (!state.record_stands() || claim.token != state.token)
    return claim.token > state.highest() ? Verdict::admitted : Verdict::stale;
  if (state.is_closed) return Verdict::stale;
  if (claim.holder != state.holder) return Verdict::conflict;
  if (claim.sequence < 0 || claim.sequence > state.sequence) return Verdict::admitted;
  return claim.sequence == state.sequence ? Verdict::duplicate : Verdict::stale;
}

// The record after a claim that was admitted. Without a sequence the old one stays, under the same token.
inline void take(State& state, const ModelClaim& claim) {
  if (claim.token > state.highest()) {
    state.token = claim.token;
    state.holder = claim.holder;
    state.sequence = state.earlier_sequence = -1;
    state.sequence_known_by = 0;
    state.is_closed = false;
  }
  if (claim.sequence >= 0) state.sequence = claim.sequence;
}

// An operation with this token was let in: what has a lower one is over.
inline void settle(State& state, std::int64_t token) {
  if (token > state.settled) state.settled = token;
  std::erase_if(state.passed, [&](const State::Passed& passed) {
    return passed.token < state.settled || (passed.token == state.settled && !passed.closes);
  });
}

// The fence rises, and nothing shows yet that older writes are over.
inline void raise(State& state, const ModelClaim& claim, std::int64_t asked_by) {
  take(state, {claim.token, claim.holder, -1});
  state.passed.push_back({claim.token, false, asked_by});
}

inline void raise_floor(State& state, std::int64_t floor, std::int64_t asked_by) {
  if (floor <= state.highest()) {
    if (floor > state.floor) state.floor = floor;
    return;
  }
  state.floor = floor;
  state.passed.push_back({floor, true, asked_by});
}

inline void close(State& state, std::int64_t asked_by) {
  if (!state.record_stands() || state.is_closed) return;
  state.is_closed = true;
  state.passed.push_back({state.token, true, asked_by});
}

// A write that was asked at this moment may take effect now: it is admitted, or it was let in before the
// fence passed it and nothing shows that it is over.
[[nodiscard]] inline bool may_land(const State& state, const ModelClaim& claim, std::int64_t asked_at) {
  if (claim.token < state.settled) return false;
  if (judge(state, claim) == Verdict::admitted) return true;
  bool was_passed = false;
  for (const auto& passed : state.passed) {
    if (passed.token < claim.token || (passed.token == claim.token && !passed.closes)) continue;
    was_passed = true;
    if (asked_at > passed.asked_by) return false;
  }
  const bool is_own_record = state.token != claim.token || state.holder == claim.holder;
  return was_passed && is_own_record;
}

// It takes effect. records: its sequence counts, at the latest when the write returns with a known end, and
// until then a claim may be told by the sequence before it.
inline void land(State& state, const ModelClaim& claim, TextId value, bool records,
                 std::int64_t returns = 0) {
  if (judge(state, claim) == Verdict::admitted) {
    const std::int64_t earlier = claim.token == state.token ? state.sequence : -1;
    take(state, {claim.token, claim.holder, records ? claim.sequence : -1});
    if (records && claim.sequence >= 0) {
      state.earlier_sequence = earlier;
      state.sequence_known_by = returns;
    }
    settle(state, claim.token);
  }
  state.value = value;
}

// A claim that was asked at this moment may be told that it took effect before.
[[nodiscard]] inline bool is_duplicate(const State& state, const ModelClaim& claim, std::int64_t asked_at) {
  if (judge(state, claim) == Verdict::duplicate) return true;
  const bool is_of_record = state.record_stands() && !state.is_closed && claim.token == state.token &&
                            claim.holder == state.holder && claim.sequence >= 0;
  return is_of_record && claim.sequence == state.earlier_sequence && asked_at <= state.sequence_known_by;
}

// A claim was told that its holder's own later write overtook it: where the sequence before that write would
// not have said so, the later one counts by now.
inline void tell_overtaken(State& state, const ModelClaim& claim) {
  if (claim.token != state.token || claim.sequence < state.earlier_sequence) return;
  state.earlier_sequence = -1;
  state.sequence_known_by = 0;
}

}  // namespace fenceguard::proof
