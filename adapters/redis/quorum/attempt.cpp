#include "adapters/redis/quorum/attempt.hpp"

#include <utility>

namespace fenceguard::redis::quorum {

using Kind = Answer::Kind;
using What = Request::What;

Attempt::Attempt(Terms terms)
    : terms_{std::move(terms)},
      round_{terms_.nodes},
      may_hold_(terms_.nodes, false),
      has_token_(terms_.nodes, false) {}

Request Attempt::request(What what) const {
  Request request;
  request.what = what;
  request.resource = terms_.resource;
  request.holder = terms_.holder;
  request.nonce = terms_.nonce;
  request.ttl_ms = terms_.ttl_ms;
  return request;
}

Sends Attempt::start() {
  auto sends = send_to_all(terms_.nodes, request(What::ask));
  round_.begin(sends);
  return sends;
}

Sends Attempt::on_answer(std::size_t node, Answer answer, std::int64_t elapsed_ms) {
  if (is_done() || !round_.take(node, std::move(answer)) || !round_.is_complete()) return {};
  return go_on(elapsed_ms);
}

Sends Attempt::on_time_out(std::int64_t elapsed_ms) {
  if (is_done()) return {};
  round_.close();
  return go_on(elapsed_ms);
}

Sends Attempt::go_on(std::int64_t elapsed_ms) {
  if (phase_ == Phase::asking) return after_asking(elapsed_ms);
  if (phase_ == Phase::confirming) return after_confirming(elapsed_ms);
  return after_extending(elapsed_ms);
}

bool Attempt::is_in_time(std::int64_t elapsed_ms) const {
  return terms_.ttl_ms - elapsed_ms - drift_ms(terms_.ttl_ms) > 0;
}

Sends Attempt::after_asking(std::int64_t elapsed_ms) {
  for (std::size_t node = 0; node < terms_.nodes; ++node)
    may_hold_[node] = round_[node].kind == Kind::granted || round_[node].kind == Kind::silent;
  // Where a majority is free no lease of this holder lives: one of those nodes would have it.
  const auto granted = round_.largest_group(Kind::granted, are_of_one_era);
  if (granted.size() < majority() && round_.count(Kind::mine) > 0) return with_present_tenure();
  return confirm_or_take(elapsed_ms);
}

// Some nodes are held by this very holder. A majority with one number is its present lease; what is less is
// left over from an attempt that failed or a lease that is over, and is no reason for a second token.
Sends Attempt::with_present_tenure() {
  const auto group = round_.largest_group(Kind::mine, are_of_one_tenure);
  if (group.size() < majority()) {
    for (std::size_t node = 0; node < terms_.nodes; ++node) {
      if (round_[node].kind == Kind::mine) left_ms_ = std::max(left_ms_, round_[node].left_ms);
    }
    const bool is_unknown = group.size() + round_.count(Kind::silent) >= majority();
    return end(is_unknown ? Ending::short_of_votes : Ending::left_over);
  }
  Sends sends = withdrawals();
  Sends extensions;
  token_ = round_[group.front()].number;
  for (const auto node : group) {
    auto extension = request(What::extend);
    extension.number = token_;
    extension.epoch = round_[node].epoch;
    // Not the attempt's own: a withdrawal of it must never end the lease.
    extension.nonce += '+';
    extensions.push_back(send_to(node, std::move(extension)));
  }
  phase_ = Phase::extending;
  round_.begin(extensions);
  sends.insert(sends.end(), extensions.begin(), extensions.end());
  return sends;
}

Sends Attempt::confirm_or_take(std::int64_t elapsed_ms) {
  const auto group = round_.largest_group(Kind::granted, are_of_one_era);
  if (group.size() < majority()) return refused();
  for (const auto node : group) token_ = std::max(token_, round_[node].number);
  Sends sends;
  for (const auto node : group) {
    has_token_[node] = round_[node].number == token_;
    if (has_token_[node]) continue;
    auto confirmation = request(What::confirm);
    confirmation.epoch = round_[node].epoch;
    confirmation.answered = round_[node].number;
    confirmation.number = token_;
    sends.push_back(send_to(node, std::move(confirmation)));
  }
  const auto confirmed_count = group.size() - sends.size();
  if (confirmed_count < majority()) {
    phase_ = Phase::confirming;
    round_.begin(sends);
    return sends;
  }
  if (!is_in_time(elapsed_ms)) return end(Ending::too_late);
  // The rest of the group is brought to the token as well, but that is not waited for.
  for (const auto node : group) may_hold_[node] = false;
  auto rest = end(Ending::granted);
  sends.insert(sends.end(), rest.begin(), rest.end());
  return sends;
}

Sends Attempt::refused() {
  std::vector<std::int64_t> lefts;
  for (std::size_t node = 0; node < terms_.nodes; ++node) {
    if (round_[node].kind == Kind::held) lefts.push_back(round_[node].left_ms);
  }
  const auto granted_count = round_.count(Kind::granted);
  // Without any that is held, those that granted are of several epochs.
  if (lefts.empty() || lefts.size() + granted_count < majority()) return end(Ending::short_of_votes);
  // The lock is free once so many of the holds are gone that a majority is.
  std::ranges::sort(lefts);
  const auto gone = granted_count < majority() ? majority() - granted_count : 1;
  left_ms_ = lefts[std::min(gone, lefts.size()) - 1];
  const auto holds = round_.largest_group(Kind::held, [](const Answer& a, const Answer& b) {
    return a.holder == b.holder && (a.number == 0) == (b.number == 0);
  });
  return end(holds.size() >= majority() ? Ending::held : Ending::contended);
}

Sends Attempt::withdrawals() const {
  Sends sends;
  for (std::size_t node = 0; node < terms_.nodes; ++node) {
    if (!may_hold_[node]) continue;
    auto withdrawal = request(What::withdraw);
    // What has the token by now, unheard, is part of the lease and stays.
    if (ending_ == Ending::granted) withdrawal.number = token_;
    sends.push_back(send_to(node, std::move(withdrawal)));
  }
  return sends;
}

Sends Attempt::end(Ending ending) {
  ending_ = ending;
  return withdrawals();
}

Sends Attempt::after_confirming(std::int64_t elapsed_ms) {
  std::size_t confirmed_count = 0;
  bool is_any_refused = false;
  for (std::size_t node = 0; node < terms_.nodes; ++node) {
    has_token_[node] = has_token_[node] || round_[node].kind == Kind::confirmed;
    if (has_token_[node]) ++confirmed_count;
    is_any_refused = is_any_refused || round_[node].kind == Kind::refused;
  }
  if (confirmed_count < majority()) return end(is_any_refused ? Ending::contended : Ending::short_of_votes);
  if (!is_in_time(elapsed_ms)) return end(Ending::too_late);
  for (std::size_t node = 0; node < terms_.nodes; ++node) {
    if (has_token_[node]) may_hold_[node] = false;
  }
  return end(Ending::granted);
}

Sends Attempt::after_extending(std::int64_t elapsed_ms) {
  if (round_.count(Kind::confirmed) < majority()) {
    ending_ = round_.count(Kind::refused) > 0 ? Ending::left_over : Ending::short_of_votes;
    return {};
  }
  ending_ = is_in_time(elapsed_ms) ? Ending::again : Ending::too_late;
  return {};
}

}  // namespace fenceguard::redis::quorum
