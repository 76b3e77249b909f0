#include "server/lane/lane_scheduler.hpp"

#include <algorithm>
#include <deque>

#include "guard/store/storage.hpp"
#include "guard/support/wait_for.hpp"

namespace fenceguard::proxy {
namespace {

LaneState& state_of(const LaneOptions& options) {
  if (!options.state) throw InvalidInput("a storage without a check of its own needs a state: --state");
  if (LaneState* state = options.state->lane_state()) return *state;
  throw InvalidInput("this storage cannot keep the state of a lane: use --state sqlite:PATH");
}

// One more, because a time is cut to whole milliseconds.
Time settle_of(const LaneOptions& options) {
  return options.settle + Time{1};
}

LaneLimits limits_of(const LaneOptions& options, std::size_t cache_entries) {
  return {settle_of(options), options.waiting_per_resource_max, options.waiting_max, cache_entries};
}

bool is_new(LaneState& state, const LaneOptions& options) {
  return options.is_settled && state.last_stop(options.upstream) == LaneState::LastStop::none;
}

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

// Takes what answers this ticket out of the actions, if it is there: it is one of the events.
template <class Answer, class... Events>
std::optional<Answer> take_answer(Actions& actions, Ticket ticket) {
  std::optional<Answer> answer;
  const auto take = [&]<class Event>(Event* event) {
    if (event != nullptr && event->ticket == ticket) answer = std::move(*event);
  };
  for (auto action = actions.begin(); action != actions.end(); ++action) {
    (take(std::get_if<Events>(&*action)), ...);
    if (!answer) continue;
    actions.erase(action);
    break;
  }
  return answer;
}

Outcome<FenceView> view_of(const Outcome<LaneStore::Loaded>& outcome) {
  if (!outcome.ok()) return outcome.fault();
  return outcome.value().view;
}

template <class T>
std::int64_t pending_of(const Outcome<T>& outcome) {
  return outcome.ok() ? outcome.value().pending : 0;
}

Outcome<Ruling> ruling_of(Entry entry) {
  if (auto* entered = std::get_if<EnteredEvent>(&entry)) return std::move(entered->rulings.front());
  if (auto* refused = std::get_if<RefusedEvent>(&entry)) return std::move(refused->ruling);
  return std::get<FailedEvent>(std::move(entry)).fault;
}

}  // namespace

LaneScheduler::LaneScheduler(const LaneOptions& options, std::int64_t jump_max, std::size_t cache_entries)
    : options_{options},
      fences_{(void(state_of(options)), options_.state->fences())},
      state_{state_of(options)},
      cut_off_{state_},
      store_{fences_, state_, cut_off_, jump_max},
      is_new_{is_new(state_, options)},
      table_{limits_of(options, cache_entries)} {
  const auto last_stop = state_.last_stop(options_.upstream);
  if (last_stop == LaneState::LastStop::unclean) {
    table_.close_all(now() + settle_of(options_));
  } else if (last_stop != LaneState::LastStop::clean && !is_new_) {
    table_.close_all(now() + settle_of(options_), Quarantine::not_shown);
  }
  timer_ = std::thread{[this] { keep_time(); }};
}

// What may still run at each step: calls of the store and their answers, until pending_ is waited for; a
// tick, which may begin one, until the timer is joined. An answer may begin another call, which is counted
// before the first one's count ends.
LaneScheduler::~LaneScheduler() {
  cut_off_.stop();
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
    timer_wake_.notify_one();
  }
  timer_.join();
  pending_.wait();
  {
    const std::scoped_lock lock{mutex_};
    // A mark that this scheduler only found belongs to writes of which it knows nothing.
    if (unclean_flag_ != UncleanFlag::set || !table_.is_settled(now())) return;
  }
  try {
    (void)wait_for<bool>([&](Done<bool> done) { state_.mark_closed(options_.upstream, std::move(done)); });
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
  auto entry = take_answer<Entry, EnteredEvent, RefusedEvent, FailedEvent>(actions, ticket);
  if (entry && actions.empty()) return entry;
  if (!entry) waiters_.emplace(ticket, std::move(entered));
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
  auto answer = take_answer<LeftEvent, LeftEvent>(actions, ticket);
  if (answer && actions.empty() && ending != Ending::unknown) return answer;
  if (!answer) waiters_.emplace(ticket, std::move(left));
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
    if (is_withdrawn) waiters_.erase(ticket);
  });
  return is_withdrawn;
}

void LaneScheduler::revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) noexcept {
  const Ticket ticket = new_ticket();
  feed([&](Actions& actions) {
    waiters_.emplace(ticket, Revoke{std::move(lease), {}, {}, std::move(done)});
    const Claim claim{std::move(resource), Token{1}, Holder{}, std::nullopt};
    table_.ask({ticket, Kind::revoke, {claim}}, {now(), actions});
  });
}

void LaneScheduler::finish(Claim claim, Done<bool> done) {
  if (cut_off_.pending() == nullptr) return done(true);
  const Ticket ticket = new_ticket();
  feed([&](Actions& actions) {
    const auto told = [done = std::move(done)](const Outcome<FenceView>& outcome) {
      done(outcome.ok() ? Outcome<bool>{true} : Outcome<bool>{outcome.fault()});
    };
    waiters_.emplace(ticket, Revoke{{}, claim, {}, told});
    table_.ask({ticket, Kind::revoke, {claim.without_sequence()}}, {now(), actions});
  });
}

void LaneScheduler::forget_fences() noexcept {
  feed([this](Actions& actions) { table_.forget_fences({now(), actions}); });
}

std::optional<Entry> LaneScheduler::wait_for_flag(Ask ask, std::function<void(Entry)> entered) {
  const auto failed = [&](const std::string& reason) {
    return Entry{FailedEvent{ask.ticket, Fault{FaultKind::unavailable, reason, Time{1'000}}}};
  };
  const StoreStatus status = fences_.status();
  if (status.state != StoreState::ready) return failed(status.reason);
  {
    const std::scoped_lock lock{mutex_};
    if (early_.size() >= options_.waiting_max) return failed("too many operations wait to be let in");
    early_.push_back({std::move(ask), std::move(entered)});
    // Where it has been set meanwhile, flag_set() lets this one in as well.
    if (unclean_flag_ == UncleanFlag::being_set) return std::nullopt;
    if (unclean_flag_ == UncleanFlag::unset) unclean_flag_ = UncleanFlag::being_set;
  }
  const Done<bool> done = pending_.track<bool>([this](const Outcome<bool>& outcome) { flag_set(outcome); });
  if (unclean_flag_ == UncleanFlag::set) {
    done(true);
  } else {
    store_.mark_open(done);
  }
  return std::nullopt;
}

void LaneScheduler::flag_set(const Outcome<bool>& outcome) noexcept {
  feed([&](Actions& actions) {
    unclean_flag_.store(outcome.ok() ? UncleanFlag::set : UncleanFlag::unset, std::memory_order_release);
    for (DeferredEntry& early : std::exchange(early_, {})) {
      const Ticket ticket = early.ask.ticket;
      waiters_.emplace(ticket, std::move(early.entered));
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
                   [&](EnteredEvent& entered) { add_entry(entered.ticket, std::move(entered), jobs); },
                   [&](RefusedEvent& refused) { add_entry(refused.ticket, std::move(refused), jobs); },
                   [&](FailedEvent& failed) { add_entry(failed.ticket, std::move(failed), jobs); },
                   [&](LeftEvent& left) { add_left(std::move(left), jobs); },
                   [&](Load& call) { jobs.push_back(load(std::move(call.resource))); },
                   [&](Raise& call) { jobs.push_back(raise(std::move(call))); },
                   [&](Close& call) { jobs.push_back(close(std::move(call.resource), call.ticket)); },
                   [&](Record& call) { jobs.push_back(record(std::move(call.claim), call.ticket)); },
                   [&](CutOff& call) { jobs.push_back(cut_off(std::move(call))); },
               },
               action);
  }
  return jobs;
}

void LaneScheduler::add_entry(Ticket ticket, Entry entry, Jobs& jobs) {
  const auto found = waiters_.find(ticket);
  if (found == waiters_.end()) return;
  if (auto* entered = std::get_if<std::function<void(Entry)>>(&found->second)) {
    jobs.push_back([entered = std::move(*entered), entry = std::move(entry)] { entered(entry); });
  } else if (auto& revoke = std::get<Revoke>(found->second); revoke.done) {
    auto* failed = std::get_if<FailedEvent>(&entry);
    auto outcome = failed != nullptr ? Outcome<FenceView>{std::move(failed->fault)} : std::move(revoke.view);
    jobs.push_back([done = std::move(revoke.done), outcome = std::move(outcome)] { done(outcome); });
  }
  waiters_.erase(found);
}

void LaneScheduler::add_left(LeftEvent left, Jobs& jobs) {
  const auto found = waiters_.find(left.ticket);
  if (found == waiters_.end()) return;
  auto& told = std::get<std::function<void(LeftEvent)>>(found->second);
  jobs.push_back([told = std::move(told), left = std::move(left)] { told(left); });
  waiters_.erase(found);
}

LaneScheduler::Job LaneScheduler::load(Resource resource) {
  auto done = answer<LaneStore::Loaded>([this, resource](const auto& outcome, Step step) {
    table_.loaded(resource, view_of(outcome), step, pending_of(outcome));
  });
  return [this, resource = std::move(resource), done = std::move(done)] { store_.load(resource, done); };
}

LaneScheduler::Job LaneScheduler::raise(Raise call) {
  auto done = answer<LaneStore::RaiseResult>([this, claim = call.claim](const auto& outcome, Step step) {
    if (!outcome.ok()) return table_.raised(claim, outcome.fault(), step);
    table_.raised(claim, outcome.value().ruling, step, outcome.value().pending);
  });
  return [this, call = std::move(call), done = std::move(done)] { store_.raise(call, done); };
}

LaneScheduler::Job LaneScheduler::close(Resource resource, Ticket ticket) {
  auto& revoke = std::get<Revoke>(waiters_.at(ticket));
  auto done = answer<LaneStore::Loaded>([this, resource, ticket](const auto& outcome, Step step) {
    if (outcome.ok()) std::get<Revoke>(waiters_.at(ticket)).view = outcome.value().view;
    table_.closed(resource, ticket, view_of(outcome), step, pending_of(outcome));
  });
  if (revoke.finished) {
    done = [done = std::move(done),
            told = std::exchange(revoke.done, nullptr)](const Outcome<LaneStore::Loaded>& outcome) noexcept {
      done(outcome);
      told(view_of(outcome));
    };
  }
  return [this, resource = std::move(resource), lease = revoke.lease, finished = revoke.finished,
          done = std::move(done)] { store_.close(resource, lease, finished, done); };
}

LaneScheduler::Job LaneScheduler::record(Claim claim, Ticket ticket) {
  auto done = answer<Ruling>([this, claim, ticket](const auto& outcome, Step step) {
    table_.recorded(claim, ticket, outcome, step);
  });
  return [this, claim = std::move(claim), done = std::move(done)] { store_.record(claim, done); };
}

LaneScheduler::Job LaneScheduler::cut_off(CutOff call) {
  auto done = answer<bool>([this, call](const auto& outcome, Step step) {
    table_.cut_off(call.resource, call.old_token, outcome, step);
  });
  return [this, call = std::move(call), done = std::move(done)] { cut_off_.run(call, done); };
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

void LaneScheduler::advance(Claim claim, Done<Ruling> done) {
  Ask ask{new_ticket(), Kind::advance, {std::move(claim)}};
  if (auto entry = enter(std::move(ask), [done](Entry late) { done(ruling_of(std::move(late))); }))
    done(ruling_of(*std::move(entry)));
}

void LaneScheduler::compact(Token lowest_live, Done<Compaction> done) {
  if (cut_off_.pending() != nullptr) {
    // A holder whose lease is over may live on, and its fence alone tells that it is to be cut off.
    return done(Fault{FaultKind::unavailable,
                      "a guard with --fence-method keeps the fences of those whom it may have to cut off: to "
                      "compact, start it without"});
  }
  const auto then = [this, done = std::move(done)](Outcome<Compaction> outcome) {
    forget_fences();  // also after a fault: it goes step by step
    done(std::move(outcome));
  };
  fences_.compact(lowest_live, pending_.track<Compaction>(then));
}

void LaneScheduler::show(Resource resource, Done<FenceView> done) {
  fences_.show(std::move(resource), std::move(done));
}

void LaneScheduler::list(FenceListing listing, Done<FencePage> done) {
  fences_.list(std::move(listing), std::move(done));
}

void LaneScheduler::init(std::int64_t floor, Done<std::int64_t> done) {
  // The state may have been restored, and its mark with it. Before the call, because a claim may come with
  // its answer.
  if (!is_new_) {
    const std::scoped_lock lock{mutex_};
    table_.close_all(now() + settle_of(options_), Quarantine::not_shown);
  }
  const auto then = [this, done = std::move(done)](Outcome<std::int64_t> outcome) {
    forget_fences();
    done(std::move(outcome));
  };
  fences_.init(floor, pending_.track<std::int64_t>(then));
}

void LaneScheduler::rebase(Rebase, Done<FenceView> done) {
  done(Fault{FaultKind::unavailable,
             "a running guard's fences cannot be set by hand: stop the guard, then run 'fenceguard fence "
             "rebase --storage sqlite:STATE' with the file of its --state"});
}

bool LaneScheduler::is_overtaken(const Resource& resource, Token token) const {
  const std::scoped_lock lock{mutex_};
  return table_.is_overtaken(resource, token);
}

std::optional<Fault> LaneScheduler::quarantine(std::string_view name) const {
  const std::scoped_lock lock{mutex_};
  return table_.quarantine(name, now());
}

std::vector<LaneTable::View> LaneScheduler::list_lanes(const FenceListing& listing,
                                                       LaneTable::Which which) const {
  const std::scoped_lock lock{mutex_};
  return table_.list(listing, which, now());
}

LaneTable::Figures LaneScheduler::figures() const {
  const std::scoped_lock lock{mutex_};
  return table_.figures();
}

}  // namespace fenceguard::proxy
