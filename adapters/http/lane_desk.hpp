#pragma once

// LaneDesk: one LaneTable behind one mutex, with its clock, its timer and its store. Operations come from any
// thread; who can be answered at once is, the others are called back. The store is called, and callbacks are
// made, outside the mutex.
//
// What is counted is counted to its end: where that throws (no memory, a callback that throws), the process
// ends. Its mark then closes everything at the next start, which a lost ticket would not.
//
// Thread-safe.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "adapters/http/lanes.hpp"
#include "guard/lane_state.hpp"

namespace fenceguard::proxy {

class LaneDesk {
 public:
  // See Lanes.
  LaneDesk(const LaneOptions& options, std::int64_t jump_max, std::size_t cache_entries);
  ~LaneDesk();
  LaneDesk(const LaneDesk&) = delete;
  LaneDesk& operator=(const LaneDesk&) = delete;

  [[nodiscard]] Ticket new_ticket() noexcept { return next_ticket_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::optional<Entry> enter(Ask ask, std::function<void(Entry)> entered);
  [[nodiscard]] std::optional<Left> leave(Ticket ticket, Ending ending,
                                          std::function<void(Left)> left) noexcept;
  [[nodiscard]] Ruling judge_read(Ticket ticket) const;
  void end_read(Ticket ticket) noexcept;
  [[nodiscard]] bool withdraw(Ticket ticket) noexcept;
  void revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) noexcept;
  void forget_fences() noexcept;
  [[nodiscard]] bool is_overtaken(const Resource& resource, Token token) const;
  [[nodiscard]] std::optional<Fault> quarantine(std::string_view name) const;
  [[nodiscard]] LaneTable::Figures figures() const;

 private:
  using Job = std::function<void()>;
  using Jobs = std::vector<Job>;
  struct Revoke {
    std::optional<Claim> lease;
    FenceView view;  // after it
    Done<FenceView> done;
  };
  struct Early {
    Ask ask;
    std::function<void(Entry)> entered;
  };
  enum class Mark { unset, being_set, set };  // by this desk, whatever it found

  // What is to be done for these actions once the mutex is free. REQUIRES: mutex_ is held.
  [[nodiscard]] Jobs jobs_of(Actions&& actions);
  void add_answer(Ticket ticket, Entry entry, Jobs& jobs);
  void add_left(Left left, Jobs& jobs);
  [[nodiscard]] Job revoke_answer(Revoke revoke, const Entry& entry) const;
  [[nodiscard]] Job load(Resource resource);
  [[nodiscard]] Job raise(Raise call);
  [[nodiscard]] Job close(Resource resource, const std::optional<Claim>& lease, Ticket ticket);
  [[nodiscard]] Job record(Claim claim, Ticket ticket);

  [[nodiscard]] std::optional<Entry> enter_marked(Ask ask, std::function<void(Entry)> entered) noexcept;
  // Feeds the table and does what follows. REQUIRES: mutex_ is free.
  template <class Event>
  void feed(Event event) noexcept;
  // A store's call has been answered.
  template <class Event>
  void feed_answer(Event event) noexcept;
  void run(Jobs jobs) noexcept;
  [[nodiscard]] static Time now();

  // Writes that came before the mark was set.
  [[nodiscard]] std::optional<Entry> wait_for_mark(Ask ask, std::function<void(Entry)> entered);
  void mark_set(const Outcome<bool>& outcome) noexcept;
  void keep_time() noexcept;
  void wake_timer_if_due();

  const std::shared_ptr<Storage> storage_;  // lives for as long as its store is called
  FenceStore& store_;
  LaneState& state_;
  const std::int64_t jump_max_;
  const std::size_t waiting_max_;
  std::atomic<Ticket> next_ticket_{1};

  mutable std::mutex mutex_;
  LaneTable table_;
  std::unordered_map<Ticket, std::function<void(Entry)>> entering_;
  std::unordered_map<Ticket, std::function<void(Left)>> leaving_;
  std::unordered_map<Ticket, Revoke> revokes_;
  std::atomic<Mark> mark_{Mark::unset};  // changed under mutex_
  std::vector<Early> early_;
  std::size_t calls_ = 0;  // of the store, unanswered
  std::condition_variable calls_over_;

  std::condition_variable timer_wake_;
  bool timer_is_set_ = false;
  bool is_stopping_ = false;
  std::thread timer_;
};

}  // namespace fenceguard::proxy
