#pragma once

// Attempt: one attempt to take a lock at a majority of independent servers, with a token that rises from
// grant to grant, as a pure state machine: answers and moments in, requests out, no socket, no clock.
//
// Redlock (redis.io, 'Distributed Locks with Redis') made to carry tokens. Round 1 asks every node for the
// lock; each that grants it answers its next number. With t the largest number of a majority, round 2 lets
// each node of it raise its counter to t, if the lock there is still ours with the very number that it
// answered. The token is t once a majority has confirmed; a node that answered t in round 1 has. Two
// majorities share a node; there one hold came first, and the later taker counted from at least t.
//
// Not thread-safe.

#include <cstdint>
#include <string>

#include "adapters/redis/quorum/round.hpp"

namespace fenceguard::redis::quorum {

class Attempt {
 public:
  struct Terms {
    std::size_t nodes = 0;
    std::string resource;
    std::string holder;
    std::string nonce;  // of this attempt alone, without '+'
    std::int64_t ttl_ms = 0;
  };

  enum class Ending {
    open,            // answers are awaited
    granted,         // token() is new
    again,           // token() is that of the holder's present lease, extended
    held,            // by one other holder, at a majority
    contended,       // several are at it; soon one of them has it, or all have withdrawn
    left_over,       // the same holder's earlier attempt is not quite gone
    short_of_votes,  // fewer than a majority answered that they may vote, all in one epoch
    too_late,        // a majority confirmed, but nothing is left of the time to live
  };

  explicit Attempt(Terms terms);

  // Each answers what is to be sent now. elapsed_ms: since start(). What is sent when the attempt has ended
  // is not awaited: withdrawals, and confirmations that bring the rest of the nodes to the token.
  [[nodiscard]] Sends start();
  [[nodiscard]] Sends on_answer(std::size_t node, Answer answer, std::int64_t elapsed_ms);
  // The nodes have had their time for the present round.
  [[nodiscard]] Sends on_time_out(std::int64_t elapsed_ms);

  [[nodiscard]] Ending ending() const noexcept { return ending_; }
  [[nodiscard]] bool is_done() const noexcept { return ending_ != Ending::open; }
  // The present round is another one than before when this changes.
  [[nodiscard]] int round() const noexcept { return static_cast<int>(phase_); }
  // If granted or again.
  [[nodiscard]] std::int64_t token() const noexcept { return token_; }
  // If held, contended or left_over: how long what was seen may last.
  [[nodiscard]] std::int64_t left_ms() const noexcept { return left_ms_; }

 private:
  enum class Phase { asking, confirming, extending };

  [[nodiscard]] Request request(Request::What what) const;
  [[nodiscard]] Sends go_on(std::int64_t elapsed_ms);
  [[nodiscard]] Sends after_asking(std::int64_t elapsed_ms);
  [[nodiscard]] Sends with_present_tenure();
  [[nodiscard]] Sends confirm_or_take(std::int64_t elapsed_ms);
  [[nodiscard]] Sends refused();
  [[nodiscard]] Sends after_confirming(std::int64_t elapsed_ms);
  [[nodiscard]] Sends after_extending(std::int64_t elapsed_ms);
  [[nodiscard]] Sends end(Ending ending);
  [[nodiscard]] Sends withdrawals() const;
  [[nodiscard]] bool is_in_time(std::int64_t elapsed_ms) const;
  [[nodiscard]] std::size_t majority() const { return majority_of(terms_.nodes); }

  Terms terms_;
  Phase phase_ = Phase::asking;
  Ending ending_ = Ending::open;
  Round round_;
  std::vector<bool> may_hold_;   // nodes that may have a hold of this attempt
  std::vector<bool> has_token_;  // nodes whose hold has the token
  std::int64_t token_ = 0;
  std::int64_t left_ms_ = 0;
};

// What a lease loses to clocks that run differently: the part of ttl that is not counted on.
[[nodiscard]] constexpr std::int64_t drift_ms(std::int64_t ttl_ms) {
  return ttl_ms / 100 + 2;
}

}  // namespace fenceguard::redis::quorum
