#pragma once

// LaneScheduler: a LaneTable behind one mutex, with its clock, its timer and its store. Operations come from
// any thread, enter at once where nothing has to be waited for, and are told later otherwise. The store is
// called, and callbacks are made, outside the mutex. Fences of idle resources are kept in a cache, the rest
// in the state.
//
// What is counted is counted to its end: where that throws (no memory, a callback that throws), the process
// ends. Its mark then closes everything at the next start, which a lost ticket would not.
//
// As a FenceStore it is the state's fences with the lanes in front of them: advance and revoke drain, what
// changes the store behind the lanes makes them look again, and rebase is unavailable: that is for a stopped
// guard.
//
// Thread safety: all calls may be made from any thread. 17 members, because its timer shares the mutex with
// the table: it sleeps until what the table says is due.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "guard/store/fence_store.hpp"
#include "guard/store/lane_options.hpp"
#include "guard/store/lane_state.hpp"
#include "guard/store/pending_calls.hpp"
#include "guard/store/storage.hpp"
#include "server/lane/cut_off.hpp"
#include "server/lane/lane_store.hpp"
#include "server/lane/lane_table.hpp"

namespace fenceguard::proxy {

class LaneScheduler : public FenceStore {
 public:
  // Closes everything for the settle time unless the state shows that no write of an earlier guard is under
  // way; sets the mark before the first write enters. REQUIRES: options.state offers a LaneState. Throws
  // Unavailable or InvalidInput.
  LaneScheduler(const LaneOptions& options, std::int64_t jump_max, std::size_t cache_entries);
  // Takes the mark away if it set it, and everything is settled. REQUIRES: no operation is in flight or waits
  // that will be reported.
  ~LaneScheduler() override;
  LaneScheduler(const LaneScheduler&) = delete;
  LaneScheduler& operator=(const LaneScheduler&) = delete;

  [[nodiscard]] Ticket new_ticket() noexcept { return next_ticket_.fetch_add(1, std::memory_order_relaxed); }

  // Asks to enter. Answers at once where it can; otherwise nothing, and entered is called once, on any
  // thread, perhaps before this call returns. entered must not block, throw, nor call the lanes. What this
  // call throws was not asked.
  [[nodiscard]] std::optional<Entry> enter(Ask ask, std::function<void(Entry)> entered);

  // As enter(), where one of the common kind enters at once: a claim without a sequence that equals its
  // fence. The highest token of its resource; nothing: nothing was asked.
  [[nodiscard]] std::optional<std::int64_t> enter_at_once(Ticket ticket, Kind kind,
                                                          const Claim& claim) noexcept;

  // The write is over. Answers at once that the client may be told; otherwise (a sequence is being recorded)
  // nothing, and left is called once, on any thread. unknown: REQUIRES that nothing of ours can deliver the
  // request any more: the connection was reset, not closed. REQUIRES, for all: the write has entered, and has
  // not left.
  [[nodiscard]] std::optional<LeftEvent> leave(Ticket ticket, Ending ending,
                                               std::function<void(LeftEvent)> left) noexcept;

  // What the fence says now of a read that has entered: see LaneTable. REQUIRES: end_read() was not called.
  [[nodiscard]] Ruling judge_read(Ticket ticket) const;
  // Ends the read if it is still admitted, and says so.
  [[nodiscard]] bool end_admitted_read(Ticket ticket) noexcept;
  // Owed by every read that has entered.
  void end_read(Ticket ticket) noexcept;

  // The client went away while its operation waited; entered is not called any more, unless it is being
  // called. True if it was withdrawn; false if it was answered (then leave() is owed where it has entered).
  [[nodiscard]] bool withdraw(Ticket ticket) noexcept;

  // True if the resource's lane has a fence above the token: a write in flight under it keeps the next one
  // out, and must not do so for ever. False for an idle lane.
  [[nodiscard]] bool is_overtaken(const Resource& resource, Token token) const;

  // Why no claim on this resource is admitted now, and for how long; nothing where it is open. Of no name:
  // whether everything is closed.
  [[nodiscard]] std::optional<Fault> quarantine(std::string_view name) const;

  [[nodiscard]] LaneTable::Figures figures() const;
  [[nodiscard]] std::vector<LaneTable::View> list_lanes(const FenceListing& listing,
                                                        LaneTable::Which which) const;

  // Has told called, on the store's thread, with each claim that raised its fence; null: no more, and no call
  // is under way when this returns.
  void watch_raises(std::function<void(const Claim&)> told) { store_.watch_raises(std::move(told)); }

  // From now on old holders are cut off by it before a newer one goes on. REQUIRES: called once, before any
  // claim; the fencer outlives the scheduler, which stops it at its own end. Throws InvalidInput where the
  // state cannot keep what is pending.
  void cut_off_by(HolderFencer& fencer) { cut_off_.begin(fencer); }

  // None is cut off here, and what a guard before this one left pending is forgotten, durably. REQUIRES:
  // called before any claim. Throws Unavailable or OutcomeUnknown.
  void cut_off_none() { cut_off_.forget_pending(); }

  // The claim's holder gives it back, and writes no more: where old holders are cut off, its fence is closed
  // and nothing is pending for it. Else nothing is done. done is called once, on any thread, as soon as that
  // is durable; it does not wait for the holder's writes.
  void finish(Claim claim, Done<bool> done);

  // The fences.
  [[nodiscard]] StoreStatus status() const override { return fences_.status(); }
  void advance(Claim claim, Done<Ruling> done) override;
  void revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) noexcept override;
  void compact(Token lowest_live, Done<Compaction> done) override;
  void show(Resource resource, Done<FenceView> done) override;
  void list(FenceListing listing, Done<FencePage> done) override;
  void init(std::int64_t floor, Done<std::int64_t> done) override;
  void rebase(Rebase rebase, Done<FenceView> done) override;

 private:
  using Job = std::function<void()>;
  using Jobs = std::vector<Job>;
  struct Revoke {
    std::optional<Claim> lease;
    std::optional<Claim> finished;  // its own holder asks for it: told when it is durable
    FenceView view;                 // after it
    Done<FenceView> done;           // null: it was told
  };
  // Who is told of an operation: how it entered, that it has left, or what a revoke came to.
  using Waiter = std::variant<std::function<void(Entry)>, std::function<void(LeftEvent)>, Revoke>;
  struct DeferredEntry {
    Ask ask;
    std::function<void(Entry)> entered;
  };
  enum class UncleanFlag { unset, being_set, set };  // by this scheduler, whatever it found

  // What is to be done for these actions once the mutex is free. REQUIRES: mutex_ is held.
  [[nodiscard]] Jobs jobs_of(Actions&& actions);
  void add_entry(Ticket ticket, Entry entry, Jobs& jobs);
  void add_left(LeftEvent left, Jobs& jobs);
  [[nodiscard]] Job load(Resource resource);
  [[nodiscard]] Job raise(Raise call);
  [[nodiscard]] Job close(Resource resource, Ticket ticket);
  [[nodiscard]] Job record(Claim claim, Ticket ticket);
  [[nodiscard]] Job cut_off(CutOff call);

  [[nodiscard]] std::optional<Entry> enter_flagged(Ask ask, std::function<void(Entry)> entered) noexcept;
  void forget_fences() noexcept;
  // Feeds the table and does what follows. REQUIRES: mutex_ is free.
  template <class Event>
  void feed(Event event) noexcept;
  // Feeds the table with an answer of the store. The call is counted from now on.
  template <class T, class Event>
  [[nodiscard]] Done<T> answer(Event event);
  void run(Jobs jobs) noexcept;
  [[nodiscard]] static Time now();

  // Writes that came before the mark was set.
  [[nodiscard]] std::optional<Entry> wait_for_flag(Ask ask, std::function<void(Entry)> entered);
  void flag_set(const Outcome<bool>& outcome) noexcept;
  void keep_time() noexcept;
  void wake_timer_if_due();

  const LaneOptions options_;  // its state lives for as long as that is called
  FenceStore& fences_;
  LaneState& state_;
  HolderCutOff cut_off_;
  LaneStore store_;
  const bool is_new_;  // and settled: as the operator says
  std::atomic<Ticket> next_ticket_{1};

  mutable std::mutex mutex_;
  LaneTable table_;
  std::unordered_map<Ticket, Waiter> waiters_;
  std::atomic<UncleanFlag> unclean_flag_{UncleanFlag::unset};  // changed under mutex_
  std::vector<DeferredEntry> early_;

  std::condition_variable timer_wake_;
  bool timer_is_set_ = false;
  bool is_stopping_ = false;
  std::thread timer_;
  PendingCalls pending_;  // of the store
};

template <class Event>
void LaneScheduler::feed(Event event) noexcept {
  Actions actions;
  std::unique_lock lock{mutex_};
  event(actions);
  wake_timer_if_due();
  Jobs jobs = jobs_of(std::move(actions));
  lock.unlock();
  run(std::move(jobs));
}

template <class T, class Event>
Done<T> LaneScheduler::answer(Event event) {
  return pending_.track<T>([this, event = std::move(event)](const Outcome<T>& outcome) {
    feed([&](Actions& actions) { event(outcome, Step{now(), actions}); });
  });
}

}  // namespace fenceguard::proxy
