#include "adapters/redis/quorum/raise.hpp"

#include <utility>

namespace fenceguard::redis::quorum {

using Kind = Answer::Kind;
using What = Request::What;

namespace {

Request lift_to(std::int64_t number, const std::string& epoch) {
  Request request;
  request.what = What::lift;
  request.number = number;
  request.epoch = epoch;
  return request;
}

}  // namespace

Raise::Raise(Terms terms) : terms_{std::move(terms)}, round_{terms_.nodes}, epochs_(terms_.nodes) {}

Sends Raise::start() {
  Request request;
  request.what = What::prepare;
  request.nonce = terms_.nonce;
  auto sends = send_to_all(terms_.nodes, std::move(request));
  round_.begin(sends);
  return sends;
}

Sends Raise::on_answer(std::size_t node, Answer answer) {
  if (is_done() || !round_.take(node, std::move(answer)) || !round_.is_complete()) return {};
  return go_on();
}

Sends Raise::on_time_out() {
  if (is_done()) return {};
  round_.close();
  return go_on();
}

Sends Raise::go_on() {
  if (phase_ == Phase::preparing) return after_preparing();
  if (phase_ == Phase::freezing) return after_freezing();
  const auto done = round_.count(Kind::confirmed) >= majority_of(terms_.nodes);
  return end(done                              ? Ending::done
             : round_.count(Kind::refused) > 0 ? Ending::overtaken
                                               : Ending::short_of_votes);
}

Sends Raise::end(Ending ending) {
  ending_ = ending;
  return {};
}

Sends Raise::after_preparing() {
  std::int64_t clock_us = 0;
  bool is_one_era = true;
  for (std::size_t node = 0; node < terms_.nodes; ++node) {
    const auto& answer = round_[node];
    clock_us = std::max(clock_us, answer.clock_us);
    if (answer.kind == Kind::unmarked) candidates_.push_back(node);
    if (answer.kind != Kind::marked) continue;
    marked_.push_back(node);
    epochs_[node] = answer.epoch;
    is_one_era = is_one_era && answer.epoch == epochs_[marked_.front()];
    number_ = std::max(number_, answer.number);
  }
  const auto answered_count = marked_.size() + candidates_.size();
  if (answered_count < majority_of(terms_.nodes)) return end(Ending::short_of_votes);
  if (candidates_.empty() && is_one_era) return write();
  if (!candidates_.empty() && marked_.size() < majority_of_others()) {
    if (answered_count < terms_.nodes) return end(Ending::short_of_votes);
    is_from_clock_ = true;
    number_ = std::max(number_, clock_us);
  }
  return marked_.empty() ? write() : freeze();
}

Sends Raise::freeze() {
  phase_ = Phase::freezing;
  Sends sends;
  for (const auto node : marked_) {
    Request request;
    request.what = What::freeze;
    request.epoch = epochs_[node];
    request.next_epoch = terms_.nonce;
    sends.push_back(send_to(node, std::move(request)));
  }
  round_.begin(sends);
  return sends;
}

Sends Raise::after_freezing() {
  std::vector<std::size_t> frozen;
  for (const auto node : marked_) {
    if (round_[node].kind != Kind::confirmed) continue;
    frozen.push_back(node);
    epochs_[node] = terms_.nonce;
    number_ = std::max(number_, round_[node].number);
  }
  const auto frozen_min = is_from_clock_ ? marked_.size() : candidates_.empty() ? 0 : majority_of_others();
  if (frozen.size() < frozen_min) {
    return end(round_.count(Kind::refused) > 0 ? Ending::overtaken : Ending::short_of_votes);
  }
  marked_ = std::move(frozen);
  return write();
}

Sends Raise::write() {
  phase_ = Phase::writing;
  number_ = std::max(number_, terms_.mark);
  Sends sends;
  for (const auto node : marked_) sends.push_back(send_to(node, lift_to(number_, epochs_[node])));
  for (const auto node : candidates_) {
    Request request;
    request.what = What::bootstrap;
    request.nonce = terms_.nonce;
    request.epoch = terms_.nonce;
    request.number = number_;
    sends.push_back(send_to(node, std::move(request)));
  }
  round_.begin(sends);
  return sends;
}

Sends Draw::start() {
  Request request;
  request.what = What::draw;
  auto sends = send_to_all(round_.size(), std::move(request));
  round_.begin(sends);
  return sends;
}

Sends Draw::on_answer(std::size_t node, Answer answer) {
  if (is_done() || !round_.take(node, std::move(answer)) || !round_.is_complete()) return {};
  return go_on();
}

Sends Draw::on_time_out() {
  if (is_done()) return {};
  round_.close();
  return go_on();
}

Sends Draw::go_on() {
  const auto majority = majority_of(round_.size());
  if (is_writing_) {
    const bool is_written = at_number_count_ + round_.count(Kind::confirmed) >= majority;
    ending_ = is_written ? Ending::drawn : Ending::short_of_votes;
    return {};
  }
  if (round_.count(Kind::unmarked) == round_.size()) {
    ending_ = Ending::uninitialised;
    return {};
  }
  const auto group = round_.largest_group(Kind::granted, are_of_one_era);
  if (group.size() < majority) {
    ending_ = Ending::short_of_votes;
    return {};
  }
  for (const auto node : group) number_ = std::max(number_, round_[node].number);
  Sends sends;
  for (const auto node : group) {
    if (round_[node].number == number_) {
      ++at_number_count_;
    } else {
      sends.push_back(send_to(node, lift_to(number_, round_[node].epoch)));
    }
  }
  is_writing_ = true;
  round_.begin(sends);
  if (sends.empty()) return go_on();
  return sends;
}

}  // namespace fenceguard::redis::quorum
