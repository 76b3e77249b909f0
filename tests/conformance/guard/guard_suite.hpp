#pragma once

// What every guard must do, whatever it rests on: the shared table of the rule, and the guarantees G1 to G3
// under histories with a seeded random order and under threads. An adapter runs the suite by naming its
// spaces:
//
//   INSTANTIATE_TEST_SUITE_P(Sqlite, GuardSuite, testing::Values(GuardKind{"embedded", make_embedded}),
//                            guard_kind_name);
//
// A space is one fresh namespace with the fences that it is made with; each connection stands for one client
// and is used by one thread at a time. Its tests are compiled once, in guard_suite.cpp.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "guard/judge.hpp"
#include "tests/judge_cases.hpp"

namespace fenceguard::test {

class GuardConnection {
 public:
  virtual ~GuardConnection() = default;
  [[nodiscard]] virtual Ruling advance(const Claim& claim) = 0;
  // Sets the value kept under the claim's resource, judged in the same step.
  [[nodiscard]] virtual Ruling write(const Claim& claim, const std::string& value) = 0;
  // A plain read; '' if there is none.
  [[nodiscard]] virtual std::string read(const Resource& resource) = 0;
};

class GuardSpace {
 public:
  virtual ~GuardSpace() = default;
  [[nodiscard]] virtual std::unique_ptr<GuardConnection> connect() = 0;
  // What is on record, read past any cache.
  [[nodiscard]] virtual FenceView fence(const Resource& resource) = 0;
};

struct GuardKind {
  // What the namespace holds at the start.
  struct Start {
    std::int64_t floor = 0;
    std::map<Resource, Fence> records;
  };
  std::string name;
  std::function<std::unique_ptr<GuardSpace>(const Start&)> make;
  // False where there is no namespace that could hold a floor (Redis Cluster): the cases of the table with
  // one have no meaning there, and Start::floor is always 0.
  bool has_floor = true;
};

inline std::string guard_kind_name(const testing::TestParamInfo<GuardKind>& info) {
  return info.param.name;
}

class GuardSuite : public testing::TestWithParam<GuardKind> {
 protected:
  [[nodiscard]] static std::unique_ptr<GuardSpace> fresh() { return GetParam().make({}); }

  static Resource resource_of(const JudgeCase& expected) {
    return Resource{"case/" + std::to_string(expected.line)};
  }

  // Calls check with a space for each floor of the table, which holds the records of all its cases, each
  // under a resource of its own.
  template <class Check>
  static void for_each_floor(const Check& check) {
    std::map<std::int64_t, std::vector<JudgeCase>> by_floor;
    for (const auto& expected : judge_cases()) by_floor[expected.view.floor].push_back(expected);
    EXPECT_GT(by_floor.size(), 3u);
    for (const auto& [floor, cases] : by_floor) {
      if (floor > 0 && !GetParam().has_floor) continue;
      GuardKind::Start start{floor, {}};
      for (const auto& expected : cases) {
        if (expected.view.record) start.records.emplace(resource_of(expected), *expected.view.record);
      }
      check(*GetParam().make(start), cases);
    }
  }

  static Claim claim_of(const Resource& resource, std::int64_t token, const std::string& holder = "h") {
    return {resource, Token{token}, Holder{holder}, std::nullopt};
  }
};

}  // namespace fenceguard::test
