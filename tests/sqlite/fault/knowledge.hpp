#pragma once

// Knowledge: what a caller knows of the resources that it wrote through a storage whose disk fails, to be
// held against what is found there afterwards.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {

inline unsigned seed() {
  return static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed() + 13);
}

// Waits until the storage has opened itself again.
inline void wait_until_ready(const OpenStorage& storage) {
  const auto deadline = BootClock::now() + std::chrono::seconds{30};
  while (storage.status().state != StoreState::ready) {
    ASSERT_LT(BootClock::now(), deadline) << storage.status().reason;
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
}

// What a caller knows of the resources that it wrote: the least that must be there, and what may be there.
class Knowledge {
 public:
  // Makes a call with the next token of resource; notes how it ended.
  void advance(const OpenStorage& storage, const std::string& resource) {
    auto& known = known_[resource];
    const auto token = ++known.asked;
    attempt(
        known,
        [&] {
          EXPECT_EQ(storage.advance(claim_of(resource, token)).verdict, Verdict::admitted);
          known.acknowledged = token;
        },
        token);
  }
  void put(const OpenStorage& storage, const std::string& resource) {
    auto& known = known_[resource];
    const auto token = ++known.asked;
    attempt(
        known,
        [&] {
          EXPECT_EQ(storage.put(claim_of(resource, token), std::to_string(token)).ending.has_value(), true);
          known.acknowledged = token;
          known.body = token;
        },
        token);
    if (known.unknown.contains(token)) known.unknown_bodies.insert(token);
  }

  void check(const OpenStorage& storage) const { EXPECT_THAT(mistakes(storage), testing::IsEmpty()); }
  // What is not as it must be; a sentence each.
  [[nodiscard]] std::vector<std::string> mistakes(const OpenStorage& storage) const {
    std::vector<std::string> found;
    for (const auto& [resource, known] : known_) {
      const auto token = storage.show(resource).highest();
      const bool is_token =
          token == known.acknowledged || (token > known.acknowledged && known.unknown.contains(token));
      if (!is_token)
        found.push_back(fmt::format("{}: fence {} instead of {}", resource, token, known.acknowledged));
      const auto text = storage.body(resource);
      const std::int64_t body = text.empty() ? 0 : std::stoll(text);
      const bool is_body = body == known.body || (body > known.body && known.unknown_bodies.contains(body));
      if (!is_body) found.push_back(fmt::format("{}: body {} instead of {}", resource, body, known.body));
      if (body > token) found.push_back(fmt::format("{}: body {} above fence {}", resource, body, token));
      if (token > 1 && storage.advance(claim_of(resource, token - 1)).verdict != Verdict::stale)
        found.push_back(fmt::format("{}: {} admitted below {}", resource, token - 1, token));
    }
    return found;
  }
  [[nodiscard]] int faults() const { return faults_; }
  [[nodiscard]] int unknowns() const { return unknowns_; }

 private:
  struct Known {
    std::int64_t asked = 0;
    std::int64_t acknowledged = 0;
    std::int64_t body = 0;
    std::set<std::int64_t> unknown;
    std::set<std::int64_t> unknown_bodies;
  };

  template <class Call>
  void attempt(Known& known, const Call& call, std::int64_t token) {
    try {
      call();
    } catch (const Error& error) {
      ++faults_;
      EXPECT_TRUE(error.kind() == FaultKind::unavailable || error.kind() == FaultKind::unknown)
          << error.what();
      if (error.kind() == FaultKind::unknown) {
        ++unknowns_;
        known.unknown.insert(token);
      }
    }
  }

  std::map<std::string, Known> known_;
  int faults_ = 0;
  int unknowns_ = 0;
};

// Some calls of all kinds.
inline void work(const OpenStorage& storage, Knowledge& knowledge) {
  for (int i = 0; i < 3; ++i) {
    knowledge.advance(storage, "a");
    knowledge.put(storage, "a");
    knowledge.put(storage, "b");
  }
}

}  // namespace fenceguard::test
