#pragma once

// What goes into the LaneTable and what comes out of it: operations, their endings, and the actions to be
// done. Values.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "guard/error.hpp"
#include "guard/judge.hpp"

namespace fenceguard::proxy {

using Ticket = std::uint64_t;  // names one operation; never used again
using Time = std::chrono::milliseconds;

inline constexpr Time retry_min{1'000};  // what is unavailable for now is to be tried again no sooner

enum class Kind {
  write,    // stays in the lane from 'entered' until ended()
  read,     // a fenced read: waits like a write, keeps no operation out, and is judged again by judge_read()
  advance,  // waits like a write, and leaves the lane as it enters
  revoke,   // closes the fence, and waits for every write inside, those under its own token included
};

struct LaneLimits {
  Time settle{30'000};
  std::size_t waiting_per_resource_max = 1'000;
  std::size_t waiting_max = 10'000;
  std::size_t fences_max = 0;  // fences of idle resources that are remembered; the others are looked up

  // A crowd of claims must not keep out an advance or a revoke: for these there is as much room again.
  [[nodiscard]] static constexpr std::size_t room(Kind kind, std::size_t waiting_max) noexcept {
    const bool has_reserve = kind == Kind::advance || kind == Kind::revoke;
    return has_reserve ? waiting_max + std::min(waiting_max, SIZE_MAX - waiting_max) : waiting_max;
  }
};

// An operation that asks to enter. A write has one claim or, where it touches two resources, two: then both
// enter or none.
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
struct EnteredEvent {  // the operation is in the lane; a write is in flight from now on
  Ticket ticket;
  // One for each claim, all admitted; with their fence for an advance only. None for a revoke.
  std::vector<Ruling> rulings;
};
struct RefusedEvent {  // did not enter, nothing is to be written: stale, conflict or duplicate
  Ticket ticket;
  std::size_t claim;  // which one decided
  Ruling ruling;
};
struct FailedEvent {  // did not enter, by a fault: closed (with when to try again), too many wait, the store
  Ticket ticket;
  Fault fault;
};
struct LeftEvent {  // the end is noted, and what belongs to it is durable: the client may be answered
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
struct CutOff {  // cut off all holders up to a token, and note that durably; answered by cut_off()
  Resource resource;
  Token old_token;
  Token new_token;  // the fence's; equal where it was closed, and no newer one is there yet
};
using Action =
    std::variant<EnteredEvent, RefusedEvent, FailedEvent, LeftEvent, Load, Raise, Close, Record, CutOff>;
using Actions = std::vector<Action>;

// One call of the LaneTable: when it is made, and where it puts what is to be done.
struct Step {
  Time now;
  Actions& actions;
};

// The answer to an operation that asked to enter.
using Entry = std::variant<EnteredEvent, RefusedEvent, FailedEvent>;

}  // namespace fenceguard::proxy
