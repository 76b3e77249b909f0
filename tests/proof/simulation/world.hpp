#pragma once

// World: the time, the chance and the fate of one simulated history: everything that happens is an event at a
// moment, and which of those of one moment comes first, like all else, follows from the seed.
//
// Not thread-safe.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/proof/checker/history.hpp"
#include "tests/proof/random.hpp"
#include "tests/proof/simulation/fiber.hpp"

namespace fenceguard::proof {

// How rough a history is. Chances in percent.
struct Weather {
  int loss = 2, doubling = 5, late = 10;  // of a message
  int late_ms = 60;
  int pause = 10, pause_ms = 200;  // of a client, before a step
  int client_crash = 1;
  int guard_crash = 0, state_loss = 0;    // of the lane's guard at an ask; of its state at such a crash
  int source_fault = 0;                   // at an ask: a node forgets, the counter falls back
  int clock_jump = 0;                     // at an ask, of a source's clock
  int unknown = 4;                        // of a write that was forwarded to the upstream
  int refusal = 3;                        // by the storage, of a write
  int floor = 1, revoke = 2, rogue = 30;  // of what a client does
};

struct Counts {
  std::int64_t histories = 0, operations = 0, admitted = 0, refused = 0, unknown = 0, late_writes = 0;
  std::int64_t takeovers = 0, client_crashes = 0, guard_crashes = 0, states_lost = 0, source_faults = 0;
  std::int64_t clock_jumps = 0, duplicates = 0, conflicts = 0, implausible = 0, runs_done = 0, raises = 0;
  void add(const Counts& other);
};

// Thrown in a client's fiber: its process is gone from now on.
struct ClientCrash {};

class World {
 public:
  World(std::uint64_t seed, Weather chosen) : random{seed}, weather{chosen} {}

  void after(std::int64_t delay_ms, std::function<void()> run);
  // A message: lost, late, or, where it may come twice, twice.
  void send(bool may_double, std::function<void()> arrive);
  // Runs events until there is none.
  void run();
  [[nodiscard]] std::int64_t now_ms() const noexcept { return now_ms_; }
  // A moment of its own for each call.
  [[nodiscard]] std::int64_t stamp_ns();

  // In a fiber. Stops it until start's done was called or the time is over.
  template <class T>
  [[nodiscard]] std::optional<T> await(std::int64_t timeout_ms,
                                       const std::function<void(std::function<void(T)>)>& start) {
    auto slot = std::make_shared<Slot<T>>();
    slot->fiber = Fiber::current();
    start([this, slot](T value) {
      if (slot->is_over) return;
      slot->value = std::move(value);
      wake(slot);
    });
    after(timeout_ms, [this, slot] { wake(slot); });
    while (!slot->is_over) Fiber::stop();
    return std::move(slot->value);
  }
  void sleep(std::int64_t ms);

  Random random;
  const Weather weather;
  Counts counts;
  History history;
  bool is_calm = false;  // no faults any more
  // What a source must never do and no client can see: a guard refuses what comes of it.
  std::string source_violation;

 private:
  template <class T>
  struct Slot {
    Fiber* fiber = nullptr;
    bool is_over = false;
    std::optional<T> value;
  };
  template <class T>
  void wake(const std::shared_ptr<Slot<T>>& slot) {
    if (slot->is_over) return;
    slot->is_over = true;
    after(0, [fiber = slot->fiber] { fiber->resume(); });
  }

  struct Event {
    std::int64_t at_ms;
    std::uint64_t order;  // at random among those of one moment
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return at_ms != other.at_ms ? at_ms > other.at_ms : order > other.order;
    }
  };
  std::priority_queue<Event> events_;
  std::int64_t now_ms_ = 1'000;
  std::int64_t last_ns_ = 0;
};

}  // namespace fenceguard::proof
