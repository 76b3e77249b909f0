#pragma once

// Round: one round of answers from the nodes of a quorum: which are expected to answer, and which have. Also
// the counting that all rules share. Pure; not thread-safe.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "adapters/redis/quorum/message.hpp"

namespace fenceguard::redis::quorum {

// More than half of the nodes: any two majorities share one.
[[nodiscard]] constexpr std::size_t majority_of(std::size_t nodes) {
  return nodes / 2 + 1;
}

class Round {
 public:
  explicit Round(std::size_t nodes) : expected_(nodes), answers_(nodes) {}

  // A new round, in which the nodes of sends are expected to answer them.
  void begin(const Sends& sends) {
    std::ranges::fill(expected_, std::nullopt);
    std::ranges::fill(answers_, Answer{});
    missing_ = sends.size();
    for (const auto& send : sends) expected_[send.node] = send.request->what;
  }

  // Keeps the answer. False if it is late or doubled: then it says nothing.
  bool take(std::size_t node, Answer answer) {
    if (expected_[node] != answer.to) return false;
    expected_[node].reset();
    answers_[node] = std::move(answer);
    --missing_;
    return true;
  }

  // A node that has not answered is silent.
  void close() {
    std::ranges::fill(expected_, std::nullopt);
    missing_ = 0;
  }

  [[nodiscard]] bool is_complete() const { return missing_ == 0; }
  [[nodiscard]] std::size_t size() const { return answers_.size(); }
  [[nodiscard]] const Answer& operator[](std::size_t node) const { return answers_[node]; }

  [[nodiscard]] std::size_t count(Answer::Kind kind) const {
    return static_cast<std::size_t>(std::ranges::count(answers_, kind, &Answer::kind));
  }

  // The largest group of answers of one kind that agree by same(a, b): its nodes.
  template <class Same>
  [[nodiscard]] std::vector<std::size_t> largest_group(Answer::Kind kind, Same&& same) const {
    std::vector<std::size_t> largest;
    for (std::size_t first = 0; first < size(); ++first) {
      if (answers_[first].kind != kind) continue;
      std::vector<std::size_t> group;
      for (std::size_t node = 0; node < size(); ++node) {
        if (answers_[node].kind == kind && same(answers_[first], answers_[node])) group.push_back(node);
      }
      if (group.size() > largest.size()) largest = std::move(group);
      if (largest.size() >= majority_of(size())) break;
    }
    return largest;
  }

 private:
  std::vector<std::optional<Request::What>> expected_;
  std::vector<Answer> answers_;
  std::size_t missing_ = 0;
};

[[nodiscard]] inline bool are_of_one_era(const Answer& a, const Answer& b) {
  return a.epoch == b.epoch;
}
[[nodiscard]] inline bool are_of_one_tenure(const Answer& a, const Answer& b) {
  return a.number == b.number && a.holder == b.holder && a.epoch == b.epoch;
}

}  // namespace fenceguard::redis::quorum
