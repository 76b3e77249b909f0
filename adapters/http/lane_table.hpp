#pragma once

// LaneTable: the rule of the lane as a pure state machine, for all resources of one upstream: events in,
// actions out; no socket, thread, clock or store inside. Lanes (lanes.hpp) feeds it.
//
// The upstream has no atomic check, so the guard is the atom: what it lets through it must know to be over
// before a newer token is let in. A higher token raises the fence at once, durably, and then one rule: a
// claim waits while any write with a lower token is unfinished or unknown, also when it equals the fence.
// Writes under one token run side by side, but for those with a sequence, which follow each other. An unknown
// outcome closes the resource to every claim until the settle time has passed.
//
// A lane exists while something is in flight, read, waits or is closed in it; else only its fence is
// remembered. Not thread-safe. Times are of one monotonic clock.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "guard/error.hpp"
#include "guard/judge.hpp"

namespace fenceguard::proxy {

using Ticket = std::uint64_t;  // names one operation; never used again
using Time = std::chrono::milliseconds;

enum class Kind {
  write,    // stays in the lane from 'entered' until ended()
  read,     // a fenced read: waits like a write, keeps nobody out, and is judged again by judge_read()
  advance,  // waits like a write, and is out of the lane when it is let in
  revoke,   // closes the fence, and waits for every write that was let in, those under its own token included
};

// An operation that asks to be let in. A write has one claim or, where it touches two resources, two: then
// both are let in or none.
struct Ask {
  Ticket ticket;
  Kind kind = Kind::write;
  std::vector<Claim> claims;
};

// How a write ended.
enum class Ending {
  took_effect,  // a complete final answer that says so
  refused,      // a complete final answer by which nothing was written: its sequence stays free
  unsent,       // certainly nothing reached the upstream
  unknown,      // anything else
};

// What is to be done. Each is done once, in this order.
struct Entered {  // let in; a write is in flight from now on
  Ticket ticket;
  // One for each claim, all admitted; with their fence for an advance only. None for a revoke.
  std::vector<Ruling> rulings;
};
struct Refused {  // not let in, nothing is to be written: stale, conflict or duplicate
  Ticket ticket;
  std::size_t claim;  // which one decided
  Ruling ruling;
};
struct Failed {  // not let in, by a fault: closed (with when to try again), too many wait, the store
  Ticket ticket;
  Fault fault;
};
struct Left {  // ended() was taken note of, and what belongs to it is durable: the client may be answered
  Ticket ticket;
  std::optional<Fault> fault;  // the write is over, but its sequence may not be recorded
};
struct Load {  // look the fence up; answered by loaded()
  Resource resource;
};
struct Raise {  // make this claim's token durable; answered by raised()
  Claim claim;
  std::optional<Claim> other;  // of the same write: where either is implausible, neither is raised
};
struct Close {  // close the fence durably; answered by closed()
  Resource resource;
  Ticket ticket;
};
struct Record {  // make this claim's sequence durable; answered by recorded()
  Claim claim;
  Ticket ticket;
};
using Action = std::variant<Entered, Refused, Failed, Left, Load, Raise, Close, Record>;
using Actions = std::vector<Action>;

struct LaneLimits {
  Time settle{30'000};
  std::size_t waiting_per_resource_max = 1'000;
  std::size_t waiting_max = 10'000;
  std::size_t fences_max = 0;  // fences of idle resources that are remembered; the others are looked up
};

class LaneTable {
 public:
  explicit LaneTable(LaneLimits limits);
  ~LaneTable();
  LaneTable(const LaneTable&) = delete;
  LaneTable& operator=(const LaneTable&) = delete;

  // Each appends what is to be done now. REQUIRES, for all: now never goes back. Of a revoke's claim only the
  // resource counts.
  void ask(Ask ask, Time now, Actions& actions);
  // Nothing if the write is not in flight.
  void ended(Ticket ticket, Ending ending, Time now, Actions& actions);
  // What the fence says now of a read that was let in. While it is admitted, no newer token's write is in.
  [[nodiscard]] Ruling judge_read(Ticket ticket) const;
  void end_read(Ticket ticket, Time now, Actions& actions);
  // The client went away while its operation waited. False if it waits no longer.
  bool withdraw(Ticket ticket, Time now, Actions& actions);
  // Opens what has settled.
  void tick(Time now, Actions& actions);

  // The store's answers.
  void loaded(const Resource& resource, const Outcome<FenceView>& outcome, Time now, Actions& actions);
  void raised(const Claim& claim, const Outcome<Ruling>& outcome, Time now, Actions& actions);
  void closed(const Resource& resource, Ticket ticket, const Outcome<FenceView>& outcome, Time now,
              Actions& actions);
  void recorded(const Claim& claim, Ticket ticket, const Outcome<Ruling>& outcome, Time now,
                Actions& actions);

  // Closes every resource until then: the last process left something open.
  void close_all(Time until);
  // Fences kept here may be too low: the store was compacted, or its floor raised. Who waits is judged anew.
  void forget_fences(Time now, Actions& actions);

  [[nodiscard]] bool is_overtaken(const Resource& resource, Token token) const;
  [[nodiscard]] std::optional<Fault> quarantine(std::string_view name, Time now) const;
  // When tick() is due; nothing if it is not.
  [[nodiscard]] std::optional<Time> due() const;
  // True if nothing is in flight and no outcome is unknown: a stop now leaves nothing open.
  [[nodiscard]] bool is_settled(Time now) const;

  struct Figures {
    std::size_t lanes = 0;
    std::size_t waiting = 0, in_flight = 0, closed = 0;
    std::uint64_t settle_closures = 0;  // since the start
  };
  [[nodiscard]] Figures figures() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fenceguard::proxy
