#include "guard/error.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "guard/support/wait_for.hpp"

namespace fenceguard {
namespace {

constexpr FaultKind all_kinds[] = {FaultKind::invalid_input, FaultKind::implausible, FaultKind::unavailable,
                                   FaultKind::unknown};

TEST(Fault, SurvivesTheWayThroughAnException) {
  for (const auto kind : all_kinds) {
    try {
      raise_fault({kind, "a sentence"});
    } catch (const std::exception&) {
      const auto fault = current_fault();
      EXPECT_EQ(fault.kind, kind);
      EXPECT_EQ(fault.message, "a sentence");
    }
  }
}

TEST(Fault, EachKindHasAnExceptionOfItsOwn) {
  EXPECT_THROW(raise_fault({FaultKind::invalid_input, ""}), InvalidInput);
  EXPECT_THROW(raise_fault({FaultKind::implausible, ""}), Implausible);
  EXPECT_THROW(raise_fault({FaultKind::unavailable, ""}), Unavailable);
  EXPECT_THROW(raise_fault({FaultKind::unknown, ""}), OutcomeUnknown);
}

TEST(Fault, WhatIsNoErrorOfOursIsUnknown) {
  try {
    throw std::runtime_error{"disk on fire"};
  } catch (...) {
    EXPECT_EQ(current_fault().kind, FaultKind::unknown);
  }
  try {
    throw 42;
  } catch (...) {
    EXPECT_EQ(current_fault().kind, FaultKind::unknown);
  }
}

TEST(WaitFor, GivesTheAnswerOfAnotherThread) {
  std::jthread other;
  const auto answer = wait_for<int>([&](Done<int> done) { other = std::jthread{[done] { done(42); }}; });
  EXPECT_EQ(answer, 42);
}

TEST(WaitFor, RaisesTheFault) {
  const auto call = [](const Done<int>& done) { done(Fault{FaultKind::unavailable, "not now"}); };
  EXPECT_THROW((void)wait_for<int>(call), Unavailable);
}

TEST(WaitFor, AnAnswerThatNeverCameIsUnknown) {
  EXPECT_THROW((void)wait_for<int>([](const Done<int>&) {}), OutcomeUnknown);
}

}  // namespace
}  // namespace fenceguard
