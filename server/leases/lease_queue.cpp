#include "server/leases/lease_queue.hpp"

#include <algorithm>

namespace fenceguard {
namespace {

using Kind = LeaseQueue::Action::Kind;

constexpr LeaseQueue::Duration poll_min{5};
constexpr LeaseQueue::Duration poll_max{100};

}  // namespace

// Releases that pass through this sidecar wake the first of the queue at once; the poll finds the others. It
// slows down with the number of queues, so that they ask the source some thousand times a second at most, all
// together.
LeaseQueue::Duration LeaseQueue::poll_interval(Duration hint) const {
  const Duration slowest = std::max(poll_max, Duration{static_cast<std::int64_t>(queues_.size())});
  return std::clamp(hint, poll_min, slowest);
}

LeaseQueue::Entry* LeaseQueue::find(AskId id, State state) {
  const auto found = asks_.find(id);
  return found != asks_.end() && found->second.state == state ? &found->second : nullptr;
}

std::optional<LeaseQueue::AskId> LeaseQueue::arrive(Ask ask, Time now, Actions& actions) {
  if (is_closed_ || asks_open_ >= asks_max_) return std::nullopt;
  const AskId id = next_id_++;
  const auto queue = queues_.try_emplace(ask.resource).first;
  Entry entry{std::move(ask)};
  entry.place = next_place_++;
  // The present holder asks again: it must not queue behind its waiters.
  entry.is_identifying = entry.ask.is_named && (queue->second.is_busy || !queue->second.waiting.empty());
  if (entry.is_identifying) actions.push_back({Kind::identify, id});
  queue->second.waiting.emplace(entry.place, id);
  queue->second.by_holder[entry.ask.holder].insert(id);
  ++asks_open_;
  if (entry.ask.until <= now) {
    queue->second.overdue.push_back(id);
  } else {
    expiries_.emplace(entry.ask.until, id);
  }
  asks_.emplace(id, std::move(entry));
  proceed(queue, now, actions);
  return id;
}

void LeaseQueue::identified(AskId id, bool is_holder, Time now, Actions& actions) {
  Entry* entry = find(id, State::waiting);
  if (entry == nullptr) return;  // asked, answered or withdrawn meanwhile
  entry->is_identifying = false;
  const auto queue = queues_.find(entry->ask.resource);
  if (is_holder) move_to_front(queue->second, id);
  proceed(queue, now, actions);
}

void LeaseQueue::move_to_front(WaitQueue& queue, AskId id) {
  Entry* entry = find(id, State::waiting);
  if (entry == nullptr) return;
  queue.waiting.erase(entry->place);
  entry->place = front_place_--;
  entry->was_asked = false;
  queue.waiting.emplace(entry->place, id);
}

void LeaseQueue::end_step(WaitQueue& queue) {
  if (queue.is_busy) --busy_queues_;
  queue.is_busy = false;
}

void LeaseQueue::held(AskId id, Duration hint, Time now, Actions& actions) {
  Entry* entry = find(id, State::stepping);
  if (entry == nullptr) return;
  const auto queue = queues_.find(entry->ask.resource);
  end_step(queue->second);
  entry->state = State::waiting;
  entry->is_identifying = false;  // the source has said whose the lease is not
  queue->second.waiting.emplace(entry->place, id);
  queue->second.held_until = now + hint;
  queue->second.ask_at = now + poll_interval(hint);
  // A release that passed while the source was being asked: its 'held' may be older than that, so ask once
  // more.
  entry->was_asked = !queue->second.was_released;
  if (entry->is_gone || is_closed_) {
    complete(id, false);
    actions.push_back({Kind::dismiss, id});
  } else {
    if (entry->ask.until <= now) {
      expiries_.erase({entry->ask.until, id});
      queue->second.overdue.push_front(id);
    }
    if (!queue->second.was_released) {
      // The answer holds for every ask that was queued when the source was asked.
      for (const AskId other : queue->second.overdue) {
        Entry* overdue = find(other, State::waiting);
        if (overdue != nullptr && other < queue->second.watermark) overdue->was_asked = true;
      }
    }
  }
  proceed(queue, now, actions);
}

bool LeaseQueue::granted(AskId id, const Claim& claim, Duration ttl, Time now, Actions& actions,
                         bool is_new) {
  Entry* entry = find(id, State::stepping);
  if (entry == nullptr) return false;
  const auto queue = queues_.find(entry->ask.resource);
  end_step(queue->second);
  // A lease that the holder had before is not this ask's to take back, whatever becomes of its answer.
  if (is_new) entry->pending_release = claim;
  entry->granted = claim.token;
  const bool is_answered = !entry->is_gone;
  if (is_answered) {
    entry->state = State::answered;
    --asks_open_;
    expiries_.erase({entry->ask.until, id});
    // Known without asking: the lock is now held, for all but the same holder, which comes next.
    queue->second.held_until = now + ttl;
    queue->second.ask_at = now + poll_interval(ttl);
    for (const auto& [place, other] : queue->second.waiting) asks_.at(other).was_asked = true;
    for (const AskId other : queue->second.by_holder.at(entry->ask.holder))
      move_to_front(queue->second, other);
  } else {
    complete(id, false);
    actions.push_back({Kind::dismiss, id});
  }
  proceed(queue, now, actions);
  return is_answered;
}

void LeaseQueue::failed(AskId id, Time now, Actions& actions) {
  Entry* entry = find(id, State::stepping);
  if (entry == nullptr) return;
  const auto queue = queues_.find(entry->ask.resource);
  end_step(queue->second);
  complete(id, false);
  queue->second.ask_at = now;
  proceed(queue, now, actions);
}

void LeaseQueue::reverted(const Resource& resource, Time now, Actions& actions) {
  const auto queue = queues_.find(resource);
  if (queue == queues_.end()) return;
  end_step(queue->second);
  queue->second.ask_at = now;
  proceed(queue, now, actions);
}

void LeaseQueue::gone(AskId id, Time now, Actions& actions) {
  if (Entry* entry = find(id, State::stepping)) {
    entry->is_gone = true;  // the step ends first; its lease is taken back then
    return;
  }
  Entry* entry = find(id, State::waiting);
  if (entry == nullptr) return;
  const auto queue = queues_.find(entry->ask.resource);
  complete(id, false);
  actions.push_back({Kind::dismiss, id});
  proceed(queue, now, actions);
}

void LeaseQueue::delivered(AskId id, Time now, Actions& actions) {
  const Entry* entry = find(id, State::answered);
  if (entry == nullptr) return;
  const auto queue = queues_.find(entry->ask.resource);
  complete(id, true);
  proceed(queue, now, actions);
}

void LeaseQueue::undelivered(AskId id, Time now, Actions& actions) {
  const Entry* entry = find(id, State::answered);
  if (entry == nullptr) return;
  const auto queue = queues_.find(entry->ask.resource);
  complete(id, false);
  proceed(queue, now, actions);
}

void LeaseQueue::released(const Resource& resource, Time now, Actions& actions) {
  const auto queue = queues_.find(resource);
  if (queue == queues_.end()) return;
  queue->second.was_released = true;
  queue->second.ask_at = now;
  proceed(queue, now, actions);
}

void LeaseQueue::tick(Time now, Actions& actions) {
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    const AskId id = expiries_.begin()->second;
    expiries_.erase(expiries_.begin());
    const Entry* entry = find(id, State::waiting);
    if (entry == nullptr) continue;  // its step's end sees to it
    const auto queue = queues_.find(entry->ask.resource);
    queue->second.overdue.push_back(id);
    proceed(queue, now, actions);
  }
  while (!polls_.empty() && polls_.begin()->first <= now) {
    const auto queue = queues_.find(polls_.begin()->second);
    set_poll(queue, std::nullopt);
    proceed(queue, now, actions);
  }
}

std::optional<LeaseQueue::Time> LeaseQueue::wake_at() const {
  std::optional<Time> at;
  if (!expiries_.empty()) at = expiries_.begin()->first;
  if (!polls_.empty() && (!at || polls_.begin()->first < *at)) at = polls_.begin()->first;
  return at;
}

void LeaseQueue::close(Actions& actions) {
  is_closed_ = true;
  std::vector<AskId> waiting;
  for (const auto& [id, entry] : asks_) {
    if (entry.state == State::waiting) waiting.push_back(id);
  }
  for (const AskId id : waiting) {
    complete(id, false);
    actions.push_back({Kind::dismiss, id});
  }
  for (auto queue = queues_.begin(); queue != queues_.end();) proceed(queue++, Time{}, actions);
}

// What the queue does next, if it is not busy: give back, refuse, ask, or nothing for a while. Ends the queue
// if no ask is left in it.
void LeaseQueue::proceed(WaitQueues::iterator queue, Time now, Actions& actions) {
  WaitQueue& here = queue->second;
  if (here.is_busy) return;
  set_poll(queue, std::nullopt);
  if (begin_revert(here, actions)) return;
  refuse_overdue(queue, now, actions);
  if (begin_revert(here, actions)) return;  // of the refused asks
  if (here.waiting.empty()) {
    if (here.by_holder.empty()) queues_.erase(queue);
    return;
  }
  const AskId first = here.waiting.begin()->second;
  Entry& entry = asks_.at(first);
  if (entry.was_asked && here.ask_at > now) {
    set_poll(queue, here.ask_at);
    return;
  }
  here.is_busy = true;
  ++busy_queues_;
  here.was_released = false;
  here.watermark = next_id_;
  entry.state = State::stepping;
  here.waiting.erase(here.waiting.begin());
  if (entry.ask.until <= now) std::erase(here.overdue, first);
  actions.push_back({Kind::ask, first});
}

bool LeaseQueue::begin_revert(WaitQueue& queue, Actions& actions) {
  while (!queue.reverts.empty()) {
    Claim claim = std::move(queue.reverts.back());
    queue.reverts.pop_back();
    const auto same = queue.by_holder.find(claim.holder);
    if (same != queue.by_holder.end()) {
      // The same holder has asked again meanwhile: the debt is that ask's, and it need not wait for itself.
      const AskId successor_id = *same->second.rbegin();
      Entry& successor = asks_.at(successor_id);
      if (!successor.pending_release || successor.pending_release->token < claim.token)
        successor.pending_release = std::move(claim);
      move_to_front(queue, successor_id);
      continue;
    }
    queue.is_busy = true;
    ++busy_queues_;
    queue.was_released = false;
    actions.push_back({Kind::revert, 0, std::move(claim)});
    return true;
  }
  return false;
}

// Refuses the asks whose time is over. It keeps those that are being identified, and, where the first of the
// queue is overdue too and has yet to ask the source, those that no answer has covered: its answer will
// settle them.
void LeaseQueue::refuse_overdue(WaitQueues::iterator queue, Time now, Actions& actions) {
  WaitQueue& here = queue->second;
  std::deque<AskId> overdue;
  overdue.swap(here.overdue);
  for (const AskId id : overdue) {
    const Entry* entry = find(id, State::waiting);
    if (entry == nullptr) continue;
    const Entry& first = asks_.at(here.waiting.begin()->second);
    const bool first_is_about_to_ask = !first.was_asked && first.ask.until <= now;
    if (entry->is_identifying || (!entry->was_asked && first_is_about_to_ask)) {
      here.overdue.push_back(id);
    } else {
      refuse(id, now, actions);
    }
  }
}

void LeaseQueue::refuse(AskId id, Time now, Actions& actions) {
  const Entry& entry = asks_.at(id);
  const WaitQueue& queue = queues_.at(entry.ask.resource);
  const auto retry_after = std::chrono::ceil<Duration>(queue.held_until - now);
  actions.push_back({Kind::refuse, id, std::nullopt, std::max(retry_after, Duration{0})});
  complete(id, false);
}

// Takes an ask out of its queue and settles its debt. The queue stays, even if it is empty now.
void LeaseQueue::complete(AskId id, bool is_delivered) {
  const auto found = asks_.find(id);
  const Entry entry = std::move(found->second);
  asks_.erase(found);
  WaitQueue& queue = queues_.at(entry.ask.resource);
  expiries_.erase({entry.ask.until, id});
  if (entry.state == State::waiting) queue.waiting.erase(entry.place);
  if (entry.state != State::answered) --asks_open_;
  const auto same = queue.by_holder.find(entry.ask.holder);
  same->second.erase(id);
  if (is_delivered) {
    // What was delivered is no debt: of no other ask of this holder, and of none that is gone.
    const auto is_paid = [&](const Claim& debt) {
      return debt.holder == entry.ask.holder && debt.token == entry.granted;
    };
    for (const AskId other : same->second) {
      auto& debt = asks_.at(other).pending_release;
      if (debt && is_paid(*debt)) debt.reset();
    }
    std::erase_if(queue.reverts, is_paid);
  }
  if (same->second.empty()) queue.by_holder.erase(same);
  // A lease of the same holder that was inherited since then, with another token, is one.
  const bool is_paid =
      !entry.pending_release || (is_delivered && entry.granted == entry.pending_release->token);
  if (!is_paid) queue.reverts.push_back(*entry.pending_release);
}

void LeaseQueue::set_poll(WaitQueues::iterator queue, std::optional<Time> at) {
  if (queue->second.poll) polls_.erase({*queue->second.poll, queue->first});
  queue->second.poll = at;
  if (at) polls_.emplace(*at, queue->first);
}

}  // namespace fenceguard
