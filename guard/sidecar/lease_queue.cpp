#include "guard/sidecar/lease_queue.hpp"

#include <algorithm>

namespace fenceguard {
namespace {

using Kind = LeaseQueue::Action::Kind;

constexpr LeaseQueue::Duration poll_min{5};
constexpr LeaseQueue::Duration poll_max{100};

}  // namespace

// Releases that pass through this sidecar wake the first in line at once; the poll finds the others. It slows
// down with the number of lines, so that they ask the source some thousand times a second at most, all
// together.
LeaseQueue::Duration LeaseQueue::poll_interval(Duration hint) const {
  const Duration slowest = std::max(poll_max, Duration{static_cast<std::int64_t>(lines_.size())});
  return std::clamp(hint, poll_min, slowest);
}

LeaseQueue::Entry* LeaseQueue::find(AskId id, State state) {
  const auto found = asks_.find(id);
  return found != asks_.end() && found->second.state == state ? &found->second : nullptr;
}

std::optional<LeaseQueue::AskId> LeaseQueue::arrive(Ask ask, Time now, Actions& actions) {
  if (is_closed_ || asks_open_ >= asks_max_) return std::nullopt;
  const AskId id = next_id_++;
  const auto line = lines_.try_emplace(ask.resource).first;
  Entry entry{std::move(ask)};
  entry.place = next_place_++;
  // The present holder asks again: it must not queue behind those who wait for it.
  entry.is_identifying = entry.ask.is_named && (line->second.is_busy || !line->second.waiting.empty());
  if (entry.is_identifying) actions.push_back({Kind::identify, id});
  line->second.waiting.emplace(entry.place, id);
  line->second.by_holder[entry.ask.holder].insert(id);
  ++asks_open_;
  if (entry.ask.until <= now) {
    line->second.overdue.push_back(id);
  } else {
    expiries_.emplace(entry.ask.until, id);
  }
  asks_.emplace(id, std::move(entry));
  proceed(line, now, actions);
  return id;
}

void LeaseQueue::identified(AskId id, bool is_holder, Time now, Actions& actions) {
  Entry* entry = find(id, State::waiting);
  if (entry == nullptr) return;  // asked, answered or withdrawn meanwhile
  entry->is_identifying = false;
  const auto line = lines_.find(entry->ask.resource);
  if (is_holder) move_to_front(line->second, id);
  proceed(line, now, actions);
}

void LeaseQueue::move_to_front(Line& line, AskId id) {
  Entry* entry = find(id, State::waiting);
  if (entry == nullptr) return;
  line.waiting.erase(entry->place);
  entry->place = front_place_--;
  entry->was_asked = false;
  line.waiting.emplace(entry->place, id);
}

void LeaseQueue::end_step(Line& line) {
  if (line.is_busy) --busy_lines_;
  line.is_busy = false;
}

void LeaseQueue::held(AskId id, Duration hint, Time now, Actions& actions) {
  Entry* entry = find(id, State::stepping);
  if (entry == nullptr) return;
  const auto line = lines_.find(entry->ask.resource);
  end_step(line->second);
  entry->state = State::waiting;
  line->second.waiting.emplace(entry->place, id);
  line->second.held_until = now + hint;
  line->second.ask_at = now + poll_interval(hint);
  // A release that passed while the source was being asked: its 'held' may be older than that, so ask once
  // more.
  entry->was_asked = !line->second.was_released;
  if (entry->is_gone || is_closed_) {
    leave(id, false);
    actions.push_back({Kind::dismiss, id});
  } else {
    if (entry->ask.until <= now) {
      expiries_.erase({entry->ask.until, id});
      line->second.overdue.push_front(id);
    }
    if (!line->second.was_released) {
      // The answer holds for everybody who was in line when the source was asked.
      for (const AskId other : line->second.overdue) {
        Entry* overdue = find(other, State::waiting);
        if (overdue != nullptr && other < line->second.horizon) overdue->was_asked = true;
      }
    }
  }
  proceed(line, now, actions);
}

bool LeaseQueue::granted(AskId id, const Claim& claim, Duration ttl, Time now, Actions& actions,
                         bool is_new) {
  Entry* entry = find(id, State::stepping);
  if (entry == nullptr) return false;
  const auto line = lines_.find(entry->ask.resource);
  end_step(line->second);
  // A tenure that the holder had before is not this ask's to take back, whatever becomes of its answer.
  if (is_new) entry->owes = claim;
  entry->granted = claim.token;
  const bool is_answered = !entry->is_gone;
  if (is_answered) {
    entry->state = State::answered;
    --asks_open_;
    expiries_.erase({entry->ask.until, id});
    // Known without asking: the lock is now held, for everybody but the same holder, who comes next.
    line->second.held_until = now + ttl;
    line->second.ask_at = now + poll_interval(ttl);
    for (const auto& [place, other] : line->second.waiting) asks_.at(other).was_asked = true;
    for (const AskId other : line->second.by_holder.at(entry->ask.holder)) move_to_front(line->second, other);
  } else {
    leave(id, false);
    actions.push_back({Kind::dismiss, id});
  }
  proceed(line, now, actions);
  return is_answered;
}

void LeaseQueue::failed(AskId id, Time now, Actions& actions) {
  Entry* entry = find(id, State::stepping);
  if (entry == nullptr) return;
  const auto line = lines_.find(entry->ask.resource);
  end_step(line->second);
  leave(id, false);
  line->second.ask_at = now;
  proceed(line, now, actions);
}

void LeaseQueue::taken_back(const Resource& resource, Time now, Actions& actions) {
  const auto line = lines_.find(resource);
  if (line == lines_.end()) return;
  end_step(line->second);
  line->second.ask_at = now;
  proceed(line, now, actions);
}

void LeaseQueue::gone(AskId id, Time now, Actions& actions) {
  if (Entry* entry = find(id, State::stepping)) {
    entry->is_gone = true;  // the step ends first; its lease is taken back then
    return;
  }
  Entry* entry = find(id, State::waiting);
  if (entry == nullptr) return;
  const auto line = lines_.find(entry->ask.resource);
  leave(id, false);
  actions.push_back({Kind::dismiss, id});
  proceed(line, now, actions);
}

void LeaseQueue::delivered(AskId id, Time now, Actions& actions) {
  const Entry* entry = find(id, State::answered);
  if (entry == nullptr) return;
  const auto line = lines_.find(entry->ask.resource);
  leave(id, true);
  proceed(line, now, actions);
}

void LeaseQueue::undelivered(AskId id, Time now, Actions& actions) {
  const Entry* entry = find(id, State::answered);
  if (entry == nullptr) return;
  const auto line = lines_.find(entry->ask.resource);
  leave(id, false);
  proceed(line, now, actions);
}

void LeaseQueue::released(const Resource& resource, Time now, Actions& actions) {
  const auto line = lines_.find(resource);
  if (line == lines_.end()) return;
  line->second.was_released = true;
  line->second.ask_at = now;
  proceed(line, now, actions);
}

void LeaseQueue::tick(Time now, Actions& actions) {
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    const AskId id = expiries_.begin()->second;
    expiries_.erase(expiries_.begin());
    const Entry* entry = find(id, State::waiting);
    if (entry == nullptr) continue;  // its step's end sees to it
    const auto line = lines_.find(entry->ask.resource);
    line->second.overdue.push_back(id);
    proceed(line, now, actions);
  }
  while (!polls_.empty() && polls_.begin()->first <= now) {
    const auto line = lines_.find(polls_.begin()->second);
    set_poll(line, std::nullopt);
    proceed(line, now, actions);
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
    leave(id, false);
    actions.push_back({Kind::dismiss, id});
  }
  for (auto line = lines_.begin(); line != lines_.end();) proceed(line++, Time{}, actions);
}

// What the line does next, if it is not busy: give back, refuse, ask, or nothing for a while. Ends the line
// if nobody is left in it.
void LeaseQueue::proceed(Lines::iterator line, Time now, Actions& actions) {
  Line& here = line->second;
  if (here.is_busy) return;
  set_poll(line, std::nullopt);
  if (begin_take_back(here, actions)) return;
  refuse_overdue(line, now, actions);
  if (begin_take_back(here, actions)) return;  // of those who were refused
  if (here.waiting.empty()) {
    if (here.by_holder.empty()) lines_.erase(line);
    return;
  }
  const AskId first = here.waiting.begin()->second;
  Entry& entry = asks_.at(first);
  if (entry.was_asked && here.ask_at > now) {
    set_poll(line, here.ask_at);
    return;
  }
  here.is_busy = true;
  ++busy_lines_;
  here.was_released = false;
  here.horizon = next_id_;
  entry.state = State::stepping;
  here.waiting.erase(here.waiting.begin());
  if (entry.ask.until <= now) std::erase(here.overdue, first);
  actions.push_back({Kind::ask, first});
}

bool LeaseQueue::begin_take_back(Line& line, Actions& actions) {
  while (!line.take_backs.empty()) {
    Claim claim = std::move(line.take_backs.back());
    line.take_backs.pop_back();
    const auto same = line.by_holder.find(claim.holder);
    if (same != line.by_holder.end()) {
      // The same holder has asked again meanwhile: the debt is that ask's, and it need not wait for itself.
      const AskId heir_id = *same->second.rbegin();
      Entry& heir = asks_.at(heir_id);
      if (!heir.owes || heir.owes->token < claim.token) heir.owes = std::move(claim);
      move_to_front(line, heir_id);
      continue;
    }
    line.is_busy = true;
    ++busy_lines_;
    line.was_released = false;
    actions.push_back({Kind::take_back, 0, std::move(claim)});
    return true;
  }
  return false;
}

// Refuses whose time is over: all but the first in line if it was never asked, and those who arrived after it
// behind it, whom its answer will settle.
void LeaseQueue::refuse_overdue(Lines::iterator line, Time now, Actions& actions) {
  Line& here = line->second;
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
  const Line& line = lines_.at(entry.ask.resource);
  const auto retry_after = std::chrono::ceil<Duration>(line.held_until - now);
  actions.push_back({Kind::refuse, id, std::nullopt, std::max(retry_after, Duration{0})});
  leave(id, false);
}

// Takes an ask out of its line and settles its debt. The line stays, even if it is empty now.
void LeaseQueue::leave(AskId id, bool is_delivered) {
  const auto found = asks_.find(id);
  const Entry entry = std::move(found->second);
  asks_.erase(found);
  Line& line = lines_.at(entry.ask.resource);
  expiries_.erase({entry.ask.until, id});
  if (entry.state == State::waiting) line.waiting.erase(entry.place);
  if (entry.state != State::answered) --asks_open_;
  const auto same = line.by_holder.find(entry.ask.holder);
  same->second.erase(id);
  if (is_delivered) {
    for (const AskId other : same->second) {
      if (other < id) asks_.at(other).kept = entry.granted;
    }
  }
  if (same->second.empty()) line.by_holder.erase(same);
  // What was delivered is no debt; a lease of the same holder inherited since then, with another token, is
  // one.
  const bool is_paid =
      !entry.owes || entry.kept == entry.owes->token || (is_delivered && entry.granted == entry.owes->token);
  if (!is_paid) line.take_backs.push_back(*entry.owes);
}

void LeaseQueue::set_poll(Lines::iterator line, std::optional<Time> at) {
  if (line->second.poll) polls_.erase({*line->second.poll, line->first});
  line->second.poll = at;
  if (at) polls_.emplace(*at, line->first);
}

}  // namespace fenceguard
