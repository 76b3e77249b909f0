#pragma once

// LaneSimulation: the real LaneTable between clients that do not know that they were overtaken, a store that
// fails, a guard that dies, and an upstream that applies what it was sent late, in any order, or never, and
// loses answers; with fence methods that fail and outlive their guard. All of it follows from the seed;
// checked is what the upstream applied.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "server/lane/lane_table.hpp"

namespace fenceguard::test {

class LaneSimulation {
 public:
  struct Settings {
    unsigned seed = 0;
    int actions = 300;                 // of clients
    proxy::Time settle{100};           // what the guard keeps
    proxy::Time upstream_settle{100};  // by then the upstream has finished or abandoned a request
    bool closes_at_restart = true;
    bool tells_unknown = true;  // false: a write whose end was not seen passes for a refused one
    bool judges_reads_again = true;
    bool cuts_off = false;      // old holders are cut off before newer ones go on
    bool keeps_pending = true;  // over a restart
  };

  explicit LaneSimulation(const Settings& settings);

  // What was violated, the first time; empty if nothing was.
  [[nodiscard]] std::string run();

  struct Counts {
    int entered = 0;
    int applied = 0;
    int applied_late = 0;  // after the guard gave up on them
    int unknown = 0;
    int waited = 0;  // let in later than asked
    int crashes = 0;
    int duplicates = 0;
    int reads = 0;  // that were admitted to their end
    int overtaken_reads = 0;
    int entered_at_once = 0;  // without an action
    int ended_at_once = 0;
    int cut_off = 0;
  };
  [[nodiscard]] const Counts& counts() const noexcept { return counts_; }

 private:
  struct Operation {
    proxy::Kind kind = proxy::Kind::write;
    std::vector<Claim> claims;
    int life = 0;
    proxy::Time asked_at{};
    bool is_answered = false;
    bool is_entered = false;
    bool is_over = false;     // the guard was told its end
    bool is_applied = false;  // at the upstream
    std::optional<proxy::Time> apply_at;
    bool took_effect = false;  // the guard was told so
    bool is_refused = false;   // somebody was told that nothing was written
    std::optional<Claim> lease;
  };
  struct Event {
    proxy::Time at;
    std::uint64_t order;
    std::function<void()> run;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };

  void schedule(proxy::Time delay, std::function<void()> run);
  void run_events();
  [[nodiscard]] int random(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  [[nodiscard]] bool chance(int percent) { return random(100) < percent; }
  void violate(const std::string& what);

  void act();
  [[nodiscard]] Claim choose_claim(const std::string& resource);
  [[nodiscard]] bool enter_at_once(proxy::Ticket ticket, proxy::Actions& actions);
  void ask(proxy::Kind kind, std::vector<Claim> claims);
  void forward(proxy::Ticket ticket);
  void apply(proxy::Ticket ticket);
  void end(proxy::Ticket ticket, proxy::Ending ending);
  void read(proxy::Ticket ticket, int parts);
  void pass_on_read(proxy::Ticket ticket, int parts, std::int64_t seen);
  void stop_guard();
  void start_guard();
  void compact();
  void raise_floor();
  void check_end();

  void feed(const std::function<void(proxy::Actions&)>& event);
  void take(const proxy::Actions& actions);
  void let_in(const proxy::EnteredEvent& entered);
  void require_cut_off(proxy::Kind kind, const Claim& claim);
  void mark_pending(const std::string& resource, const Fence& fence);
  void cut_off(const proxy::CutOff& call, int life);
  void note_refusal(const proxy::RefusedEvent& refused);
  void note_left(const proxy::LeftEvent& left);
  template <class T, class Apply, class Answer>
  void call_store(Apply apply, Answer answer);
  [[nodiscard]] Ruling rule(const Claim& claim);

  const Settings settings_;
  std::mt19937 random_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::uint64_t next_order_ = 0;
  proxy::Time now_{0};
  bool is_ending_ = false;  // no faults any more
  std::string violation_;
  Counts counts_;

  std::optional<proxy::LaneTable> table_;
  int life_ = 0;
  bool is_marked_ = false;

  // The state, and the time of its last answer: it answers in order.
  std::map<std::string, Fence> records_;
  std::map<std::string, std::int64_t> pending_;     // see PendingFencing; 0: nothing
  std::map<std::string, std::int64_t> cut_off_to_;  // all holders up to this one are over
  std::int64_t floor_ = 0;
  std::int64_t floor_told_ = 0;  // by hand, and acknowledged
  proxy::Time store_at_{0};

  std::int64_t issued_ = 0;
  std::map<std::string, std::vector<std::int64_t>> grants_;
  std::map<std::int64_t, int> sequences_;  // used by a token's holder
  std::map<proxy::Ticket, Operation> operations_;
  proxy::Ticket next_ticket_ = 1;
  std::map<std::string, std::int64_t> highest_entered_;
  std::map<std::string, std::int64_t> newest_applied_;
  using Sequenced = std::tuple<std::string, std::int64_t, std::int64_t>;  // resource, token, sequence
  std::set<Sequenced> applied_;
  std::set<Sequenced> acknowledged_;
};

}  // namespace fenceguard::test
