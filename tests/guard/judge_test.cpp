#include "guard/judge.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "tests/judge_cases.hpp"

namespace fenceguard {
namespace {

constexpr std::int64_t token_max = 9223372036854775807;

TEST(Judge, AnswersEveryCaseOfTheSharedTable) {
  const auto cases = test::judge_cases();
  EXPECT_GE(cases.size(), 80u);
  for (const auto& expected : cases) {
    const Ruling ruling = judge(expected.view, expected.claim("accounts/42"));
    EXPECT_EQ(ruling.verdict, expected.verdict) << "line " << expected.line;
    EXPECT_EQ(ruling.fence, expected.after) << "line " << expected.line;
    EXPECT_EQ(ruling.changed, expected.after != expected.view.record) << "line " << expected.line;
    const FenceView after{expected.after, expected.view.floor};
    EXPECT_EQ(ruling.highest, after.highest()) << "line " << expected.line;
  }
}

TEST(Judge, TheWordsOfVerdictsAreReadBack) {
  for (const auto verdict : {Verdict::admitted, Verdict::duplicate, Verdict::stale, Verdict::conflict}) {
    EXPECT_EQ(parse_verdict(to_string(verdict)), verdict);
  }
  EXPECT_FALSE(parse_verdict(""));
  EXPECT_FALSE(parse_verdict("Admitted"));
  EXPECT_FALSE(parse_verdict("missing"));
}

// Every state and claim that small numbers can make: tokens 1 to 4, floors 0 to 4, two holders and the empty
// one, sequences absent or 0 to 2, open and closed.
class SmallDomain {
 public:
  using Check = std::function<void(const FenceView&, const Claim&)>;

  static void for_each(const Check& check) {
    for_each_view([&](const FenceView& view) {
      for_each_mark([&](Token token, const Holder& holder, std::optional<Sequence> sequence) {
        check(view, Claim{Resource{"r"}, token, holder, sequence});
      });
    });
  }

  static void for_each_view(const std::function<void(const FenceView&)>& check) {
    for (std::int64_t floor = 0; floor <= 4; ++floor) {
      check({std::nullopt, floor});
      for_each_mark([&](Token token, const Holder& holder, std::optional<Sequence> sequence) {
        check({Fence{token, holder, sequence, false}, floor});
        check({Fence{token, holder, sequence, true}, floor});
      });
    }
  }

 private:
  using Mark = std::function<void(Token, const Holder&, std::optional<Sequence>)>;

  static void for_each_mark(const Mark& check) {
    for (std::int64_t token = 1; token <= 4; ++token) {
      for (const auto* holder : {"", "a", "b"}) {
        check(Token{token}, Holder{holder}, std::nullopt);
        for (std::int64_t sequence = 0; sequence <= 2; ++sequence) {
          check(Token{token}, Holder{holder}, Sequence{sequence});
        }
      }
    }
  }
};

TEST(JudgeProperties, TheHighestTokenNeverFalls) {
  SmallDomain::for_each([](const FenceView& view, const Claim& claim) {
    const auto ruling = judge(view, claim);
    const FenceView after{ruling.fence, view.floor};
    ASSERT_GE(ruling.highest, view.highest());
    ASSERT_EQ(ruling.highest, after.highest());
  });
}

TEST(JudgeProperties, OnlyAnAdmittedClaimChangesTheRecord) {
  SmallDomain::for_each([](const FenceView& view, const Claim& claim) {
    const auto ruling = judge(view, claim);
    ASSERT_EQ(ruling.changed, ruling.fence != view.record);
    if (ruling.verdict != Verdict::admitted) {
      ASSERT_FALSE(ruling.changed);
    }
  });
}

TEST(JudgeProperties, AnAdmittedClaimIsOnRecordAfterwards) {
  SmallDomain::for_each([](const FenceView& view, const Claim& claim) {
    const auto ruling = judge(view, claim);
    if (ruling.verdict != Verdict::admitted) return;
    ASSERT_TRUE(ruling.fence);
    ASSERT_EQ(ruling.fence->token, claim.token);
    ASSERT_EQ(ruling.fence->holder, claim.holder);
    ASSERT_FALSE(ruling.fence->closed);
    if (claim.sequence) {
      ASSERT_EQ(ruling.fence->sequence, claim.sequence);
    }
    ASSERT_EQ(ruling.highest, claim.token.value());
  });
}

TEST(JudgeProperties, TheSameClaimAgainIsADuplicateWithASequenceAndAdmittedWithout) {
  SmallDomain::for_each([](const FenceView& view, const Claim& claim) {
    const auto first = judge(view, claim);
    if (first.verdict != Verdict::admitted) return;
    const auto again = judge({first.fence, view.floor}, claim);
    ASSERT_EQ(again.verdict, claim.sequence ? Verdict::duplicate : Verdict::admitted);
    ASSERT_FALSE(again.changed);
  });
}

TEST(JudgeProperties, OnceAdmittedNoLowerTokenIsEverAdmittedAgain) {
  SmallDomain::for_each([](const FenceView& view, const Claim& claim) {
    const auto first = judge(view, claim);
    if (first.verdict != Verdict::admitted) return;
    for (std::int64_t lower = 1; lower < claim.token.value(); ++lower) {
      const Claim late{claim.resource, Token{lower}, claim.holder, std::nullopt};
      ASSERT_EQ(judge({first.fence, view.floor}, late).verdict, Verdict::stale);
    }
  });
}

TEST(JudgeProperties, TwoHoldersAreNeverBothAdmittedUnderOneToken) {
  SmallDomain::for_each([](const FenceView& view, const Claim& claim) {
    const auto first = judge(view, claim);
    if (first.verdict != Verdict::admitted) return;
    Claim other = claim;
    other.holder = Holder{"z"};
    ASSERT_EQ(judge({first.fence, view.floor}, other).verdict, Verdict::conflict);
  });
}

TEST(JudgeProperties, RaisingTheFloorNeverAdmitsWhatWasRefused) {
  SmallDomain::for_each([](const FenceView& view, const Claim& claim) {
    if (judge(view, claim).verdict != Verdict::stale) return;
    const FenceView raised{view.record, view.floor + 1};
    ASSERT_EQ(judge(raised, claim).verdict, Verdict::stale);
  });
}

TEST(JudgeProperties, FoldingARecordIntoTheFloorRefusesEveryoneItRefused) {
  SmallDomain::for_each([](const FenceView& view, const Claim& claim) {
    const FenceView folded{std::nullopt, view.highest()};
    if (judge(folded, claim).verdict == Verdict::admitted) {
      ASSERT_EQ(judge(view, claim).verdict, Verdict::admitted);
    }
  });
}

TEST(JudgeProperties, ARefusedWriteKeepsTheTokenAndNeverTheSequence) {
  SmallDomain::for_each([](const FenceView& view, const Claim& claim) {
    if (judge(view, claim).verdict != Verdict::admitted) return;
    const auto kept = judge_refused_write(view, claim);
    ASSERT_EQ(kept.verdict, Verdict::admitted);
    ASSERT_TRUE(kept.fence);
    ASSERT_EQ(kept.fence->token, claim.token);
    ASSERT_EQ(kept.fence->holder, claim.holder);
    const bool is_advance = !view.record || view.record->token != claim.token;
    ASSERT_EQ(kept.fence->sequence, is_advance ? std::nullopt : view.record->sequence);
    // So the same write may be tried again under its number.
    ASSERT_EQ(judge({kept.fence, view.floor}, claim).verdict, Verdict::admitted);
  });
}

Claim claim_of(std::int64_t token) {
  return {Resource{"r"}, Token{token}, Holder{"a"}, std::nullopt};
}

TEST(Implausible, AJumpUpToTheBoundIsPlausibleAndOneBeyondIsNot) {
  EXPECT_FALSE(is_implausible(claim_of(1'010), 1'000, 10));
  EXPECT_TRUE(is_implausible(claim_of(1'011), 1'000, 10));
  EXPECT_FALSE(is_implausible(claim_of(10), 0, 10));
  EXPECT_TRUE(is_implausible(claim_of(11), 0, 10));
}

TEST(Implausible, ALowTokenAndABoundOfZeroAreAlwaysPlausible) {
  EXPECT_FALSE(is_implausible(claim_of(1), token_max, 1));
  EXPECT_FALSE(is_implausible(claim_of(1'000), 1'000, 1));
  EXPECT_FALSE(is_implausible(claim_of(token_max), 0, 0));
}

TEST(Implausible, AGrantOfTheGuardsOwnSourceIsExempt) {
  Claim granted{Resource{"r"}, Token{1'000}, Holder{"h"}, std::nullopt};
  EXPECT_TRUE(is_implausible(granted, 5, 10));
  granted.is_own_grant = true;
  EXPECT_FALSE(is_implausible(granted, 5, 10));
}

TEST(Implausible, NothingOverflowsAtTheEndOfTheNumbers) {
  EXPECT_TRUE(is_implausible(claim_of(token_max), 0, token_max - 1));
  EXPECT_FALSE(is_implausible(claim_of(token_max), 0, token_max));
  EXPECT_FALSE(is_implausible(claim_of(token_max), token_max, 1));
  EXPECT_FALSE(is_implausible(claim_of(token_max), token_max - 1, 1));
}

}  // namespace
}  // namespace fenceguard
