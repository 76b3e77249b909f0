#include "server/lane/lane_scheduler.hpp"

#include <algorithm>
#include <deque>

#include "guard/store/storage.hpp"
#include "guard/support/wait_for.hpp"
#include "server/lane/store_call.hpp"

namespace fenceguard::proxy {
namespace {

LaneState& state_of(const LaneOptions& options) {
  if (!options.state) throw InvalidInput("a storage without a check of its own needs a state: --state");
  if (LaneState* state = options.state->lane_state()) return *state;
  throw InvalidInput("this storage cannot keep the state of a lane: use --state sqlite:PATH");
}

LaneLimits limits_of(const LaneOptions& options, std::size_t cache_entries) {
  // One more, because a time is cut to whole milliseconds.
  return {options.settle + Time{1}, options.waiting_per_resource_max, options.waiting_max, cache_entries};
}

bool is_new(LaneState& state, const LaneOptions& options) {
  return options.is_settled && state.last_stop(options.upstream) == LaneState::LastStop::none;
}

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

}  // namespace

LaneScheduler::LaneScheduler(const LaneOptions& options, std::int64_t jump_max, std::size_t cache_entries)
    : storage_{options.state},
      store_{(void(state_of(options)), storage_->fences())},
      state_{state_of(options)},
      jump_max_{jump_max},
      waiting_max_{options.waiting_max},
      settle_{options.settle + Time{1}},
      upstream_{options.upstream},
      is_new_{is_new(state_, options)},
      table_{limits_of(options, cache_entries)} {
  const auto last_stop = state_.last_stop(upstream_);
  if (last_stop == LaneState::LastStop::unclean) {
    table_.close_all(now() + settle_);
  } else if (last_stop != LaneState::LastStop::clean && !is_new_) {
    table_.close_all(now() + settle_, LaneTable::not_shown);
  }
  timer_ = std::thread{[this] { keep_time(); }};
}

LaneScheduler::~LaneScheduler() {
  if (fencer_ != nullptr) fencer_->stop();
  pending_.wait();
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
    timer_wake_.notify_one();
  }
  timer_.join();  // first, because a tick may call the store
  {
    std::unique_lock lock{mutex_};
    calls_over_.wait(lock, [this] { return calls_ == 0; });
    // A mark that this scheduler only found belongs to writes of which it knows nothing.
    if (unclean_flag_ != UncleanFlag::set || !table_.is_settled(now())) return;
  }
  try {
    (void)wait_for<bool>([&](Done<bool> done) { state_.mark_closed(upstream_, std::move(done)); });
  } catch (const std::exception&) {
    // It stays: the next process waits the settle time for nothing.
  }
}

Time LaneScheduler::now() {
  // It stands still while the machine is suspended, as does a storage on the same machine: what settles has
  // not gone on meanwhile. A storage elsewhere has then had more time than is counted, never less.
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

std::optional<Entry> LaneScheduler::enter(Ask ask, std::function<void(Entry)> entered) {
  if (ask.kind == Kind::write && unclean_flag_.load(std::memory_order_acquire) != UncleanFlag::set)
    return wait_for_flag(std::move(ask), std::move(entered));
  return enter_flagged(std::move(ask), std::move(entered));
}

std::optional<Entry> LaneScheduler::enter_flagged(Ask ask, std::function<void(Entry)> entered) noexcept {
  const Ticket ticket = ask.ticket;
  Actions actions;
  std::unique_lock lock{mutex_};
  table_.ask(std::move(ask), {now(), actions});
  std::optional<Entry> entry;
  for (auto action = actions.begin(); action != actions.end(); ++action) {
    const auto is_answer = [&](const auto& done) { return done.ticket == ticket; };
    if (auto* in = std::get_if<EnteredEvent>(&*action); in != nullptr && is_answer(*in)) {
      entry = std::move(*in);
    } else if (auto* no = std::get_if<RefusedEvent>(&*action); no != nullptr && is_answer(*no)) {
      entry = std::move(*no);
    } else if (auto* fault = std::get_if<FailedEvent>(&*action); fault != nullptr && is_answer(*fault)) {
      entry = std::move(*fault);
    }
    if (!entry) continue;
    if (actions.size() == 1) return entry;
    actions.erase(action);
    break;
  }
  if (!entry) entering_.emplace(ticket, std::move(entered));
  Jobs jobs = jobs_of(std::move(actions));
  lock.unlock();
  run(std::move(jobs));
  return entry;
}

std::optional<std::int64_t> LaneScheduler::enter_at_once(Ticket ticket, Kind kind,
                                                         const Claim& claim) noexcept {
  if (kind == Kind::write && unclean_flag_.load(std::memory_order_acquire) != UncleanFlag::set)
    return std::nullopt;
  const std::scoped_lock lock{mutex_};
  return table_.enter_at_once(ticket, kind, claim, now());
}

std::optional<LeftEvent> LaneScheduler::leave(Ticket ticket, Ending ending,
                                              std::function<void(LeftEvent)> left) noexcept {
  Actions actions;
  std::unique_lock lock{mutex_};
  if (ending != Ending::unknown && table_.end_at_once(ticket)) return LeftEvent{ticket, std::nullopt};
  table_.ended(ticket, ending, {now(), actions});
  std::optional<LeftEvent> answer;
  for (auto action = actions.begin(); action != actions.end(); ++action) {
    auto* done = std::get_if<LeftEvent>(&*action);
    if (done == nullptr || done->ticket != ticket) continue;
    answer = std::move(*done);
    if (actions.size() == 1 && ending != Ending::unknown) return answer;
    actions.erase(action);
    break;
  }
  if (!answer) leaving_.emplace(ticket, std::move(left));
  wake_timer_if_due();
  Jobs jobs = jobs_of(std::move(actions));
  lock.unlock();
  run(std::move(jobs));
  return answer;
}

Ruling LaneScheduler::judge_read(Ticket ticket) const {
  const std::scoped_lock lock{mutex_};
  return table_.judge_read(ticket);
}

bool LaneScheduler::end_admitted_read(Ticket ticket) noexcept {
  bool is_admitted = false;
  feed([&](Actions& actions) {
    is_admitted = table_.is_read_admitted(ticket);
    if (is_admitted) table_.end_read(ticket, {now(), actions});
  });
  return is_admitted;
}

void LaneScheduler::end_read(Ticket ticket) noexcept {
  feed([&](Actions& actions) { table_.end_read(ticket, {now(), actions}); });
}

bool LaneScheduler::withdraw(Ticket ticket) noexcept {
  bool is_withdrawn = false;
  feed([&](Actions& actions) {
    is_withdrawn = table_.withdraw(ticket, {now(), actions});
    if (!is_withdrawn) {
      const auto early = std::find_if(early_.begin(), early_.end(),
                                      [&](const DeferredEntry& e) { return e.ask.ticket == ticket; });
      is_withdrawn = early != early_.end();
      if (is_withdrawn) early_.erase(early);
    }
    if (is_withdrawn) entering_.erase(ticket);
  });
  return is_withdrawn;
}

void LaneScheduler::revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) noexcept {
  const Ticket ticket = new_ticket();
  feed([&](Actions& actions) {
    revokes_.emplace(ticket, Revoke{std::move(lease), {}, std::move(done), {}});
    const Claim claim{std::move(resource), Token{1}, Holder{}, std::nullopt};
    table_.ask({ticket, Kind::revoke, {claim}}, {now(), actions});
  });
}

void LaneScheduler::forget_fences() noexcept {
  feed([this](Actions& actions) { table_.forget_fences({now(), actions}); });
}

std::optional<Entry> LaneScheduler::wait_for_flag(Ask ask, std::function<void(Entry)> entered) {
  const auto failed = [&](const std::string& reason) {
    return Entry{FailedEvent{ask.ticket, Fault{FaultKind::unavailable, reason, Time{1'000}}}};
  };
  const StoreStatus status = store_.status();
  if (status.state != StoreState::ready) return failed(status.reason);
  {
    const std::scoped_lock lock{mutex_};
    if (early_.size() >= waiting_max_) return failed("too many operations wait to be let in");
    early_.push_back({std::move(ask), std::move(entered)});
    // Where it has been set meanwhile, mark_set() lets this one in as well.
    if (unclean_flag_ == UncleanFlag::being_set) return std::nullopt;
    if (unclean_flag_ == UncleanFlag::unset) unclean_flag_ = UncleanFlag::being_set;
    ++calls_;
  }
  if (unclean_flag_ == UncleanFlag::set) {
    flag_set(true);
  } else {
    const auto answer = [this](const Outcome<bool>& outcome) { flag_set(outcome); };
    call_store(answer, [&] { state_.mark_open(answer); });
  }
  return std::nullopt;
}

void LaneScheduler::flag_set(const Outcome<bool>& outcome) noexcept {
  feed_answer([&](Actions& actions) {
    unclean_flag_.store(outcome.ok() ? UncleanFlag::set : UncleanFlag::unset, std::memory_order_release);
    for (DeferredEntry& early : std::exchange(early_, {})) {
      const Ticket ticket = early.ask.ticket;
      entering_.emplace(ticket, std::move(early.entered));
      if (outcome.ok()) {
        table_.ask(std::move(early.ask), {now(), actions});
      } else {
        // Whether or not the mark is set: nothing was forwarded.
        actions.emplace_back(
            FailedEvent{ticket, {FaultKind::unavailable, outcome.fault().message, Time{1'000}}});
      }
    }
  });
}

// One after the other, although a store may answer within its call: a long queue must not become a deep
// stack.
void LaneScheduler::run(Jobs jobs) noexcept {
  if (jobs.empty()) return;
  thread_local std::deque<Job> queue;
  thread_local bool is_running = false;
  std::move(jobs.begin(), jobs.end(), std::back_inserter(queue));
  if (is_running) return;
  is_running = true;
  while (!queue.empty()) {
    const Job job = std::move(queue.front());
    queue.pop_front();
    job();
  }
  is_running = false;
}

LaneScheduler::Jobs LaneScheduler::jobs_of(Actions&& actions) {
  Jobs jobs;
  for (Action& action : actions) {
    std::visit(Overloaded{
                   [&](EnteredEvent& entered) { add_answer(entered.ticket, std::move(entered), jobs); },
                   [&](RefusedEvent& refused) { add_answer(refused.ticket, std::move(refused), jobs); },
                   [&](FailedEvent& failed) { add_answer(failed.ticket, std::move(failed), jobs); },
                   [&](LeftEvent& left) { add_left(std::move(left), jobs); },
                   [&](Load& call) { jobs.push_back(load(std::move(call.resource))); },
                   [&](Raise& call) { jobs.push_back(raise(std::move(call))); },
                   [&](Close& call) {
                     const Revoke& revoke = revokes_.at(call.ticket);
                     jobs.push_back(close(std::move(call.resource), revoke, call.ticket));
                   },
                   [&](Record& call) { jobs.push_back(record(std::move(call.claim), call.ticket)); },
                   [&](CutOff& call) { jobs.push_back(cut_off(std::move(call))); },
               },
               action);
  }
  return jobs;
}

void LaneScheduler::add_answer(Ticket ticket, Entry entry, Jobs& jobs) {
  if (const auto found = revokes_.find(ticket); found != revokes_.end()) {
    jobs.push_back(revoke_answer(std::move(found->second), entry));
    revokes_.erase(found);
  } else if (const auto waiting = entering_.find(ticket); waiting != entering_.end()) {
    jobs.push_back([entered = std::move(waiting->second), entry = std::move(entry)] { entered(entry); });
    entering_.erase(waiting);
  }
}

void LaneScheduler::add_left(LeftEvent left, Jobs& jobs) {
  const auto found = leaving_.find(left.ticket);
  if (found == leaving_.end()) return;
  jobs.push_back([done = std::move(found->second), left = std::move(left)] { done(left); });
  leaving_.erase(found);
}

LaneScheduler::Job LaneScheduler::revoke_answer(Revoke revoke, const Entry& entry) const {
  if (!revoke.done) return [] {};  // it was told
  if (const auto* failed = std::get_if<FailedEvent>(&entry))
    return [done = std::move(revoke.done), fault = failed->fault] { done(fault); };
  return [done = std::move(revoke.done), view = std::move(revoke.view)] { done(view); };
}

LaneScheduler::Job LaneScheduler::load(Resource resource) {
  ++calls_;
  return [this, resource = std::move(resource)] {
    const auto answer = [this, resource](const Outcome<FenceView>& outcome) {
      if (pending_fencing_ != nullptr && outcome.ok()) return load_pending(resource, outcome.value());
      feed_answer([&](Actions& actions) { table_.loaded(resource, outcome, {now(), actions}); });
    };
    call_store(answer, [&] {
      // A namespace that is not initialised shows no fence: its claims are refused.
      const StoreStatus status = store_.status();
      if (status.state != StoreState::ready) return answer(Fault{FaultKind::unavailable, status.reason});
      store_.show(resource, answer);
    });
  };
}

LaneScheduler::Job LaneScheduler::raise(Raise call) {
  ++calls_;
  return [this, call = std::move(call)] {
    const auto answer = [this, claim = call.claim](const Outcome<Ruling>& outcome) {
      if (outcome.ok() && outcome.value().changed) tell_raise(claim);
      feed_answer([&](Actions& actions) { table_.raised(claim, outcome, {now(), actions}); });
    };
    call_store(answer, [&] {
      // The state may have been opened with another bound. What it has seen only rises, so that of two claims
      // the second is not refused where the first was raised.
      const std::int64_t highest = jump_max_ > 0 ? store_.status().highest : 0;
      if (is_implausible(call.claim, highest, jump_max_) ||
          (call.other && is_implausible(*call.other, highest, jump_max_))) {
        return answer(Fault{FaultKind::implausible,
                            "the token is further above the highest seen here than --max-jump allows"});
      }
      if (pending_fencing_ != nullptr) return raise_pending(call.claim);
      store_.advance(call.claim, answer);
    });
  };
}

LaneScheduler::Job LaneScheduler::close(Resource resource, const Revoke& revoke, Ticket ticket) {
  ++calls_;
  if (pending_fencing_ != nullptr) return close_pending(std::move(resource), revoke, ticket);
  return [this, resource = std::move(resource), lease = revoke.lease, ticket] {
    const auto answer = [this, resource, ticket](const Outcome<FenceView>& outcome) {
      feed_answer([&](Actions& actions) {
        if (outcome.ok()) revokes_.at(ticket).view = outcome.value();
        table_.closed(resource, ticket, outcome, {now(), actions});
      });
    };
    call_store(answer, [&] { store_.revoke(resource, lease, answer); });
  };
}

LaneScheduler::Job LaneScheduler::record(Claim claim, Ticket ticket) {
  ++calls_;
  return [this, claim = std::move(claim), ticket] {
    const auto answer = [this, claim, ticket](const Outcome<Ruling>& outcome) {
      feed_answer([&](Actions& actions) { table_.recorded(claim, ticket, outcome, {now(), actions}); });
    };
    call_store(answer, [&] { state_.record(claim, answer); });
  };
}

void LaneScheduler::wake_timer_if_due() {
  if (!timer_is_set_ && table_.due()) timer_wake_.notify_one();
}

void LaneScheduler::keep_time() noexcept {
  std::unique_lock lock{mutex_};
  while (!is_stopping_) {
    const auto due = table_.due();
    timer_is_set_ = due.has_value();
    if (!due) {
      timer_wake_.wait(lock);
      continue;
    }
    const Time left = *due - now();
    if (left > Time{0}) {
      timer_wake_.wait_for(lock, left);
      continue;
    }
    lock.unlock();
    feed([&](Actions& actions) { table_.tick({now(), actions}); });
    lock.lock();
  }
}

}  // namespace fenceguard::proxy
