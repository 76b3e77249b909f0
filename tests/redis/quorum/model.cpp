#include "tests/redis/quorum/model.hpp"

#include <algorithm>

namespace fenceguard::test {

using Kind = redis::quorum::Answer::Kind;
using What = redis::quorum::Request::What;

void ModelNode::found(const std::string& epoch, std::int64_t counter) {
  votes_ = true;
  marker_ = epoch;
  counter_ = counter;
}

void ModelNode::forget() {
  votes_ = false;
  marker_.clear();
  counter_ = 0;
  locks_.clear();
}

bool ModelNode::is_in(const std::string& epoch) const {
  return votes_ && (marker_ == epoch || flaws_.ignores_eras);
}

ModelNode::Answer ModelNode::answer(Kind kind) const {
  Answer answer;
  answer.kind = kind;
  if (votes_) answer.epoch = flaws_.ignores_eras ? "same" : marker_;
  return answer;
}

ModelNode::Lock* ModelNode::lock_of(const std::string& resource, Time time) {
  const auto found = locks_.find(resource);
  if (found == locks_.end()) return nullptr;
  if (found->second.until_ms > time.ms) return &found->second;
  locks_.erase(found);
  return nullptr;
}

ModelNode::Answer ModelNode::handle(const Request& request, Time time) {
  Answer result;
  switch (request.what) {
    case What::ask:
      result = ask(request, time);
      break;
    case What::confirm:
      result = confirm(request, time);
      break;
    case What::extend:
    case What::withdraw:
    case What::renew:
    case What::release:
    case What::show:
      result = with_hold(request, time);
      break;
    default:
      result = of_state(request, time);
      break;
  }
  result.to = request.what;
  return result;
}

ModelNode::Answer ModelNode::ask(const Request& request, Time time) {
  if (!votes_) return answer(Kind::unmarked);
  const auto* lock = lock_of(request.resource, time);
  if (lock == nullptr) {
    auto granted = answer(Kind::granted);
    granted.number = ++counter_;
    locks_[request.resource] = {granted.number, request.holder, request.nonce, time.ms + request.ttl_ms};
    return granted;
  }
  const bool is_mine = lock->holder == request.holder;
  auto result = answer(!is_mine ? Kind::held : lock->nonce == request.nonce ? Kind::granted : Kind::mine);
  result.number = lock->number;
  result.left_ms = lock->until_ms - time.ms;
  if (!is_mine) result.holder = lock->holder;
  return result;
}

ModelNode::Answer ModelNode::confirm(const Request& request, Time time) {
  auto* lock = lock_of(request.resource, time);
  const bool is_mine = lock != nullptr && lock->holder == request.holder && lock->nonce == request.nonce;
  const bool is_same = is_mine && (lock->number == request.answered || flaws_.confirms_without_number);
  if (!is_in(request.epoch) || (!is_same && !flaws_.confirms_without_hold)) return answer(Kind::refused);
  lift(request.number);
  if (is_mine) lock->number = request.number;
  return answer(Kind::confirmed);
}

ModelNode::Answer ModelNode::with_hold(const Request& request, Time time) {
  auto* lock = lock_of(request.resource, time);
  const bool is_theirs = lock != nullptr && lock->holder == request.holder;
  const bool is_tenure = is_theirs && lock->number == request.number;
  Answer result;
  result.kind = Kind::refused;
  if (request.what == What::show) {
    if (lock == nullptr) return result;
    return {Kind::held, request.what, {}, lock->holder, lock->number, lock->until_ms - time.ms, 0};
  }
  const bool is_of_attempt = is_theirs && lock->nonce == request.nonce && lock->number != request.number;
  if (request.what == What::withdraw ? !is_of_attempt : !is_tenure) return result;
  if (request.what == What::extend && !is_in(request.epoch)) return result;
  result.kind = Kind::confirmed;
  if (request.what == What::extend) {
    lock->nonce = request.nonce;
    lock->until_ms = std::max(lock->until_ms, time.ms + request.ttl_ms);
  } else if (request.what == What::renew) {
    lock->until_ms = std::max(lock->until_ms, time.ms + request.ttl_ms);
  } else {
    locks_.erase(request.resource);
  }
  return result;
}

ModelNode::Answer ModelNode::of_state(const Request& request, Time time) {
  if (request.what == What::prepare) {
    if (!votes_) marker_ = request.nonce;
    auto result = answer(votes_ ? Kind::marked : Kind::unmarked);
    result.number = votes_ ? counter_ : 0;
    result.clock_us = time.clock_us;
    return result;
  }
  if (request.what == What::bootstrap) {
    if (votes_ || marker_ != request.nonce || marker_.empty()) return answer(Kind::refused);
    found(request.epoch, request.number);
    return answer(Kind::confirmed);
  }
  if (request.what == What::draw) {
    if (!votes_) return answer(Kind::unmarked);
    auto result = answer(Kind::granted);
    result.number = ++counter_;
    return result;
  }
  if (!is_in(request.epoch)) return answer(Kind::refused);
  if (request.what == What::freeze) {
    marker_ = request.next_epoch;
  } else {
    lift(request.number);
  }
  auto result = answer(Kind::confirmed);
  result.number = counter_;
  return result;
}

}  // namespace fenceguard::test
