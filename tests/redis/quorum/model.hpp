#pragma once

// ModelNode: one server of a quorum as the scripts of adapters/redis/lua make it behave, without a server,
// for the simulation. wire_test.cpp holds it to the real scripts on a real server.
//
// Not thread-safe.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "adapters/redis/quorum/message.hpp"

namespace fenceguard::test {

// What a broken node leaves out; the simulation must notice each.
struct Flaws {
  bool confirms_without_hold = false;    // round 2 without 'still mine'
  bool confirms_without_number = false;  // 'still mine' without the number answered in round 1
  bool ignores_eras = false;             // a restoration ends nothing that was under way
};

class ModelNode {
 public:
  struct Time {
    std::int64_t ms = 0;        // for times to live
    std::int64_t clock_us = 0;  // what TIME says
  };

  explicit ModelNode(Flaws flaws = {}) : flaws_{flaws} {}

  // Votes in this era, from this number on.
  void found(const std::string& epoch, std::int64_t counter);

  [[nodiscard]] redis::quorum::Answer handle(const redis::quorum::Request& request, Time time);

  // Restarts without its state.
  void forget();
  // The lock ends before its time.
  void expire(const std::string& resource) { locks_.erase(resource); }

 private:
  struct Lock {
    std::int64_t number = 0;
    std::string holder;
    std::string nonce;
    std::int64_t until_ms = 0;
  };

  using Request = redis::quorum::Request;
  using Answer = redis::quorum::Answer;

  [[nodiscard]] Answer answer(Answer::Kind kind) const;
  [[nodiscard]] Answer ask(const Request& request, Time time);
  [[nodiscard]] Answer confirm(const Request& request, Time time);
  [[nodiscard]] Answer with_hold(const Request& request, Time time);
  [[nodiscard]] Answer of_state(const Request& request, Time time);
  [[nodiscard]] Lock* lock_of(const std::string& resource, Time time);
  [[nodiscard]] bool is_in(const std::string& epoch) const;
  void lift(std::int64_t number) { counter_ = std::max(counter_, number); }

  Flaws flaws_;
  bool votes_ = false;
  std::string marker_;  // its era, or, before it votes, the nonce of its candidacy
  std::int64_t counter_ = 0;
  std::map<std::string, Lock> locks_;
};

}  // namespace fenceguard::test
