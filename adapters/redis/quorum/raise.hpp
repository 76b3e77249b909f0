#pragma once

// Raise: lifts the counters of a quorum above a number, and lets nodes vote (again) that have no state; Draw:
// draws a number that is granted to no holder. Pure state machines as Attempt is.
//
// A node that forgot its state may have been the one that two majorities share, so it counts again only from
// the highest number of a majority of the *others*: whatever was granted with its help was confirmed by one
// of those as well. Three steps keep that true whatever is under way meanwhile. First the node becomes a
// candidate under a fresh nonce, so that the state that it lost was lost before; then the others leave their
// epoch, which tells their counters and ends everything that was begun but not confirmed, because it may rest
// on an answer that the node has forgotten; then the candidate, if it is still the same, is founded in the
// new epoch. Where too few have kept their state, and all answer, the highest clock in microseconds takes the
// place of what is lost: clients do not draw a number each microsecond.
//
// Not thread-safe.

#include <cstdint>
#include <string>

#include "adapters/redis/quorum/round.hpp"

namespace fenceguard::redis::quorum {

class Raise {
 public:
  struct Terms {
    std::size_t nodes = 0;
    std::int64_t mark = 0;  // 0: none
    std::string nonce;      // of this raise alone; also the name of the epoch that it may begin
  };

  enum class Ending {
    open,
    done,            // every number drawn from now on is above mark
    short_of_votes,  // too few answered, or too few of those have kept their state
    overtaken,       // another raise or a loss of state came between; worth another try
  };

  explicit Raise(Terms terms);

  // As those of Attempt.
  [[nodiscard]] Sends start();
  [[nodiscard]] Sends on_answer(std::size_t node, Answer answer);
  [[nodiscard]] Sends on_time_out();

  [[nodiscard]] Ending ending() const noexcept { return ending_; }
  [[nodiscard]] bool is_done() const noexcept { return ending_ != Ending::open; }
  [[nodiscard]] int round() const noexcept { return static_cast<int>(phase_); }
  // If done: all counters of a majority are at least this.
  [[nodiscard]] std::int64_t number() const noexcept { return number_; }
  // How many answered that they have kept their state, and that they have none.
  [[nodiscard]] std::size_t marked_count() const noexcept { return marked_.size(); }
  [[nodiscard]] std::size_t unmarked_count() const noexcept { return candidates_.size(); }

 private:
  enum class Phase { preparing, freezing, writing };

  [[nodiscard]] Sends go_on();
  [[nodiscard]] Sends after_preparing();
  [[nodiscard]] Sends freeze();
  [[nodiscard]] Sends after_freezing();
  [[nodiscard]] Sends write();
  [[nodiscard]] Sends end(Ending ending);
  // Enough to share a node with whatever majority granted anything, less those that forgot it.
  [[nodiscard]] std::size_t majority_of_others() const { return majority_of(terms_.nodes - 1); }

  Terms terms_;
  Phase phase_ = Phase::preparing;
  Ending ending_ = Ending::open;
  Round round_;
  std::vector<std::size_t> marked_;
  std::vector<std::size_t> candidates_;
  std::vector<std::string> epochs_;  // in which each node is
  bool is_from_clock_ = false;
  std::int64_t number_ = 0;
};

class Draw {
 public:
  enum class Ending {
    open,
    drawn,
    uninitialised,  // all answered, and no node has any state: raise first
    short_of_votes,
  };

  explicit Draw(std::size_t nodes) : round_{nodes} {}

  [[nodiscard]] Sends start();
  [[nodiscard]] Sends on_answer(std::size_t node, Answer answer);
  [[nodiscard]] Sends on_time_out();

  [[nodiscard]] Ending ending() const noexcept { return ending_; }
  [[nodiscard]] bool is_done() const noexcept { return ending_ != Ending::open; }
  [[nodiscard]] int round() const noexcept { return is_writing_ ? 1 : 0; }
  // If drawn: at least every number granted before start(), below every one granted from now on.
  [[nodiscard]] std::int64_t number() const noexcept { return number_; }

 private:
  [[nodiscard]] Sends go_on();

  Round round_;
  bool is_writing_ = false;
  Ending ending_ = Ending::open;
  std::size_t at_number_count_ = 0;
  std::int64_t number_ = 0;
};

}  // namespace fenceguard::redis::quorum
