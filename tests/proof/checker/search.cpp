#include "tests/proof/checker/search.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tests/proof/checker/model.hpp"

namespace fenceguard::proof {
namespace {

constexpr int preludes_max = 3;  // unseen steps directly before one answer

std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// 128 bits: two different points of a search are not taken for one.
struct Fingerprint {
  std::uint64_t a = 0, b = 0;
  void add(std::uint64_t word) {
    a = mixed(a ^ (word + 0x9e3779b97f4a7c15));
    b = mixed(b + (word ^ 0xc2b2ae3d27d4eb4f));
  }
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
  struct Hash {
    std::size_t operator()(const Fingerprint& print) const { return print.a; }
  };
};

ModelClaim claim_of(const Operation& operation) {
  return {operation.token, operation.holder, operation.sequence};
}

ModelClaim without_sequence(const Operation& operation) {
  return {operation.token, operation.holder, -1};
}

class Search {
 public:
  Search(const std::vector<Operation>& operations, std::int64_t steps_max)
      : all_{operations}, steps_max_{steps_max}, is_taken_(operations.size(), false) {
    end_what_was_read();
    for (const Operation& told : all_) {
      if (told.answer == Answer::stale && told.highest <= told.token) closed_.insert(told.token);
    }
    for (const Operation& operation : all_) {
      if (is_ended(operation)) ++open_;
      sign_.push_back(shows_by_sequence(operation));
      has_sign_ |= sign_.back();
    }
  }

  Found run() {
    if (open_ == 0 || proceed()) return Found::order;
    return steps_ > steps_max_ ? Found::undecided : Found::none;
  }

 private:
  // Its client was told what it did. Of what is unavailable, the fence may rise now or later, as if its end
  // had not been seen; what is implausible does nothing.
  static bool is_ended(const Operation& operation) {
    return operation.is_ended() && operation.answer != Answer::unavailable &&
           operation.answer != Answer::implausible;
  }
  static bool may_raise(const Operation& operation) {
    return operation.token > 0 && operation.answer != Answer::implausible;
  }

  // A write whose end was not seen, and whose value was read, took effect before that read had returned.
  void end_what_was_read() {
    was_seen_.resize(all_.size(), false);
    std::unordered_map<TextId, std::int64_t> read_at;
    for (const Operation& read : all_) {
      if (read.kind != Kind::read || read.answer != Answer::admitted) continue;
      auto& at = read_at.try_emplace(read.value, never).first->second;
      at = std::min(at, read.returned);
    }
    for (std::size_t i = 0; i < all_.size(); ++i) {
      Operation& write = all_[i];
      if (write.kind != Kind::write || write.answer != Answer::unknown) continue;
      const auto read = read_at.find(write.value);
      if (read == read_at.end()) continue;
      write.answer = Answer::admitted;
      write.returned = read->second;
      write.highest = -1;
      was_seen_[i] = true;
    }
  }

  static bool acts_unseen(const Operation& told) {
    return told.kind == Kind::revoke || told.kind == Kind::floor;
  }

  // Some answer may rest on this unseen write's sequence, which no read shows.
  bool shows_by_sequence(const Operation& write) const {
    if (write.kind != Kind::write || write.sequence < 0 || write.answer != Answer::unknown) return false;
    return std::ranges::any_of(all_, [&](const Operation& other) {
      if (other.token != write.token || other.holder != write.holder) return false;
      return (other.answer == Answer::duplicate && other.sequence == write.sequence) ||
             (other.answer == Answer::stale && other.sequence >= 0 && other.sequence < write.sequence);
    });
  }

  // The operations that may be next: called before any that is open has returned.
  std::int64_t candidates(std::vector<std::size_t>& found) const {
    std::int64_t first_return = never;
    for (std::size_t i = first_; i < all_.size() && all_[i].called <= first_return; ++i) {
      if (is_taken_[i] || !is_ended(all_[i])) continue;
      found.push_back(i);
      first_return = std::min(first_return, all_[i].returned);
    }
    return first_return;
  }

  bool proceed() {
    std::vector<std::size_t> taken;
    const bool is_found = take_what_changes_nothing(taken) || branch();
    if (!is_found) {
      for (const std::size_t i : taken) untake(i);
    }
    return is_found;
  }

  // True if nothing is open any more.
  bool take_what_changes_nothing(std::vector<std::size_t>& taken) {
    for (bool again = true; again && open_ > 0;) {
      again = false;
      std::vector<std::size_t> next;
      const std::int64_t until = candidates(next);
      for (const std::size_t i : next) {
        // A revoke that closes nothing now may be one that closes something later.
        if (all_[i].kind == Kind::revoke) continue;
        State after = state_;
        if (!answers(after, i, until) || !(after == state_)) continue;
        take_out(i);
        taken.push_back(i);
        again = true;
      }
    }
    return open_ == 0;
  }

  bool branch() {
    if (++steps_ > steps_max_) return false;
    if (!failed_.insert(fingerprint()).second) return false;
    std::vector<std::size_t> next;
    const std::int64_t until = candidates(next);
    std::ranges::sort(next, {}, [&](std::size_t i) { return all_[i].returned; });
    for (const std::size_t i : next) {
      if (take_with_preludes(i, until, 0)) return true;
    }
    if (!has_sign_) return false;
    for (std::size_t i = 0; i < all_.size() && all_[i].called <= until; ++i) {
      if (sign_[i] && !is_taken_[i] && land_unseen(i, true, [&] { return proceed(); })) return true;
    }
    return false;
  }

  // Gives the operation its answer, after as many unseen steps as that needs, and goes on.
  bool take_with_preludes(std::size_t i, std::int64_t until, int preludes) {
    const State before = state_;
    if (answers(state_, i, until)) {
      take_out(i);
      if (proceed()) return true;
      untake(i);
      state_ = before;
      // Its end was not seen, so its sequence may not have been recorded.
      if (was_seen_[i] && all_[i].sequence >= 0) return land_unseen(i, false, [&] { return proceed(); });
      // What a revoke closes, and whether a floor is above a record, depends on who raised the fence before
      // it, though its answer does not tell. Any other unseen step could only matter to others, and is taken
      // before those.
      return acts_unseen(all_[i]) && preludes < preludes_max && raise_before(i, until, preludes);
    }
    state_ = before;
    if (preludes == preludes_max) return false;
    return raise_before(i, until, preludes) || close_before(i, until, preludes);
  }

  // What was told rests on a fence that an unseen step raised.
  bool raise_before(std::size_t i, std::int64_t until, int preludes) {
    const Operation& told = all_[i];
    const bool acts = acts_unseen(told);
    if (!acts && told.answer != Answer::stale && told.answer != Answer::conflict) return false;
    const State before = state_;
    std::vector<std::pair<std::int64_t, TextId>> tried;
    for (std::size_t j = 0; j < all_.size() && all_[j].called <= until; ++j) {
      const Operation& riser = all_[j];
      if (!may_raise(riser) || (is_taken_[j] && is_ended(riser)) || riser.token <= state_.highest()) continue;
      if (acts && riser.kind == Kind::floor) continue;
      if (told.kind == Kind::floor && riser.token != told.token) continue;
      if (told.kind == Kind::revoke && !closed_.contains(riser.token)) continue;
      if (told.highest >= 0 ? riser.token != told.highest : riser.token < told.token) continue;
      const TextId name = riser.kind == Kind::floor ? TextId{0} - 1 : riser.holder;
      if (std::ranges::find(tried, std::pair{riser.token, name}) != tried.end()) continue;
      tried.emplace_back(riser.token, name);
      if (riser.kind == Kind::floor) {
        raise_floor(state_, riser.token, until);
      } else {
        raise(state_, claim_of(riser), until);
      }
      if (take_with_preludes(i, until, preludes + 1)) return true;
      state_ = before;
    }
    return false;
  }

  bool close_before(std::size_t i, std::int64_t until, int preludes) {
    const Operation& told = all_[i];
    if (told.answer != Answer::stale || told.token != state_.token || state_.is_closed) return false;
    const auto is_closer = [&](std::size_t j) {
      return all_[j].kind == Kind::revoke && (!is_taken_[j] || !is_ended(all_[j]));
    };
    for (std::size_t j = 0; j < all_.size() && all_[j].called <= until; ++j) {
      if (!is_closer(j)) continue;
      const State before = state_;
      close(state_, until);
      if (take_with_preludes(i, until, preludes + 1)) return true;
      state_ = before;
      return false;  // one is as good as another
    }
    return false;
  }

  template <class Then>
  bool land_unseen(std::size_t i, bool records, Then then) {
    const ModelClaim claim = claim_of(all_[i]);
    if (!may_land(state_, claim, all_[i].called)) return false;
    const State before = state_;
    // Nobody saw when its sequence counted.
    land(state_, claim, all_[i].value, records, never);
    take_out(i);
    if (then()) return true;
    untake(i);
    state_ = before;
    return false;
  }

  // True if the model answers as the client was told; the state is then what it is afterwards.
  bool answers(State& state, std::size_t i, std::int64_t until) const {
    const Operation& told = all_[i];
    if (told.kind == Kind::revoke) return revoke(state, told);
    if (told.kind == Kind::floor) {
      raise_floor(state, told.token, until);
      return told.answer == Answer::admitted;
    }
    if (told.token == 0) return told.answer == Answer::admitted && told.value == state.value;
    if (told.kind == Kind::write && told.answer == Answer::admitted) {
      if (!may_land(state, claim_of(told), told.called)) return false;
      land(state, claim_of(told), told.value, true, was_seen_[i] ? never : told.returned);
      return told.highest < 0 || told.highest >= told.token;
    }
    const Verdict verdict = judge(state, claim_of(told));
    if (told.answer == Answer::duplicate)
      return is_duplicate(state, claim_of(told), told.called) && is_highest(state, told);
    if (told.answer == Answer::stale) {
      if (verdict != Verdict::stale) return false;
      tell_overtaken(state, claim_of(told));
      return is_highest(state, told);
    }
    if (told.answer == Answer::conflict) return verdict == Verdict::conflict && is_highest(state, told);
    if (verdict != Verdict::admitted) return false;
    if (told.kind == Kind::read && told.value != state.value) return false;
    take(state, without_sequence(told));
    settle(state, told.token);
    return is_highest(state, told);
  }

  static bool is_highest(const State& state, const Operation& told) {
    return told.highest < 0 || told.highest == state.highest();
  }

  // Admitted: what was let in before is over, under the closed token too.
  static bool revoke(State& state, const Operation& told) {
    if (told.answer != Answer::admitted || !is_highest(state, told)) return false;
    if (!state.record_stands()) return true;
    state.is_closed = true;
    settle(state, state.token == never ? never : state.token + 1);
    return true;
  }

  void take_out(std::size_t i) {
    is_taken_[i] = true;
    if (is_ended(all_[i])) --open_;
    while (first_ < all_.size() && (is_taken_[first_] || !is_ended(all_[first_]))) ++first_;
  }

  void untake(std::size_t i) {
    is_taken_[i] = false;
    if (is_ended(all_[i])) ++open_;
    first_ = std::min(first_, i);
  }

  // What is taken, from the first that is open on, and what of the unseen; and the state.
  Fingerprint fingerprint() const {
    Fingerprint print;
    print.add(first_);
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      bits = bits << 1 | (is_taken_[i] ? 1 : 0);
      if (i % 64 == 63) print.add(bits);
    }
    print.add(bits);
    for (const auto word : {state_.token, std::int64_t{state_.holder}, state_.sequence,
                            std::int64_t{state_.is_closed}, state_.floor, std::int64_t{state_.value},
                            state_.settled, state_.earlier_sequence, state_.sequence_known_by})
      print.add(static_cast<std::uint64_t>(word));
    for (const auto& passed : state_.passed) {
      print.add(static_cast<std::uint64_t>(passed.token) * 2 + (passed.closes ? 1 : 0));
      print.add(static_cast<std::uint64_t>(passed.asked_by));
    }
    return print;
  }

  std::vector<Operation> all_;
  const std::int64_t steps_max_;
  std::vector<bool> is_taken_;
  std::vector<bool> was_seen_;  // by a read; its client was told no end of it
  std::vector<bool> sign_;      // an unseen write whose sequence may show
  bool has_sign_ = false;
  std::unordered_set<std::int64_t> closed_;  // tokens that were refused with nothing higher
  std::size_t first_ = 0;                    // that is open
  std::size_t open_ = 0;
  State state_;
  std::int64_t steps_ = 0;
  std::unordered_set<Fingerprint, Fingerprint::Hash> failed_;
};

}  // namespace

Found find_order(const std::vector<Operation>& operations, std::int64_t steps_max) {
  return Search{operations, steps_max}.run();
}

}  // namespace fenceguard::proof
