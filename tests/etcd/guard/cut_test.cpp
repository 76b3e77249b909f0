// Lost requests and lost answers: a proxy cuts the connection after the n-th byte, n = 1, 2, ..., until a run
// passes.

#include "tests/conformance/scale.hpp"
#include "tests/etcd/guard/space.hpp"
#include "tests/process/byte_cut.hpp"

namespace fenceguard::test {
namespace {

using etcd::put;

class EtcdGuardCut : public testing::Test {
 protected:
  struct Counts {
    int done = 0, unknown = 0, nothing = 0;
  };

  // Calls story(guard) for cuts at every stride-th byte of a direction until one is not cut.
  void cut_everywhere(Proxy::Direction direction, const auto& story) {
    const int stride = 23 * slowdown;
    for (std::int64_t bytes = 1;; bytes += stride) {
      SCOPED_TRACE(
          fmt::format("{} {}", direction == Proxy::Direction::to_server ? "request" : "answer", bytes));
      etcd::Client client{space_.address_by(proxy_.port(), "?timeout=5s")};
      etcd::Guard guard{client};
      cut_.arm(direction, bytes);
      story(guard);
      if (!cut_.has_cut() || HasFatalFailure()) return;
    }
  }

  // What becomes of call(), which would set the value to 'wanted'. Ends with it set, once.
  void expect_true_answer(const Claim& claim, const std::string& wanted, const auto& call) {
    const auto before = space_.value();
    try {
      ASSERT_TRUE(call().is_done());
      ++counts_.done;
      ASSERT_EQ(space_.value(), wanted) << "acknowledged and not there";
      return;
    } catch (const OutcomeUnknown&) {
      ++counts_.unknown;
    } catch (const Unavailable&) {
      ++counts_.nothing;
      ASSERT_EQ(space_.value(), before) << "said to have done nothing";
    }
    const bool had_taken_effect = space_.value() == wanted;
    const auto again = direct_.write(claim, {put(space_.key(), wanted)}).ruling.verdict;
    ASSERT_EQ(again, had_taken_effect ? Verdict::duplicate : Verdict::admitted);
    ASSERT_EQ(space_.value(), wanted);
  }

  EtcdSpace space_{shared_cluster()};
  etcd::Guard direct_{space_.client()};
  ByteCut cut_;
  Proxy proxy_{shared_cluster().member(0).port(), cut_.filter()};
  Counts counts_;
  std::int64_t token_ = 0;
};

TEST_F(EtcdGuardCut, ConnectionCutAtAnyByteLeavesAWriteDoneOnceOrNotAtAll) {
  for (const auto direction : {Proxy::Direction::to_server, Proxy::Direction::to_client}) {
    cut_everywhere(direction, [&](etcd::Guard& guard) {
      // One that advances, after learning the floor, and one that equals.
      const auto first = claim_of(++token_, "h", "r", 1);
      const auto value = std::to_string(token_);
      expect_true_answer(first, value, [&] { return guard.write(first, {put(space_.key(), value)}); });
      const auto second = first.with(Sequence{2});
      expect_true_answer(second, value + "b",
                         [&] { return guard.write(second, {put(space_.key(), value + "b")}); });
    });
  }
  EXPECT_GT(counts_.done, 50 / slowdown);
  EXPECT_GT(counts_.unknown, 20 / slowdown);
  EXPECT_GT(counts_.nothing, 10 / slowdown);
}

TEST_F(EtcdGuardCut, CutAdvanceIsDurableOrUnknownAndCutReadIsUnavailable) {
  space_.set(space_.key(), "v");
  for (const auto direction : {Proxy::Direction::to_server, Proxy::Direction::to_client}) {
    cut_everywhere(direction, [&](etcd::Guard& guard) {
      const auto claim = claim_of(++token_);
      try {
        ASSERT_EQ(guard.advance(claim).verdict, Verdict::admitted);
        ASSERT_EQ(space_.fence(), fmt::format("{} - open h", token_)) << "acknowledged and not there";
      } catch (const OutcomeUnknown&) {
        ++counts_.unknown;
      } catch (const Unavailable&) {
        ASSERT_NE(space_.fence(), fmt::format("{} - open h", token_)) << "said to have done nothing";
      }
      ASSERT_EQ(direct_.advance(claim).verdict, Verdict::admitted);
      try {
        const auto read = guard.read(claim, {etcd::get(space_.key())});
        ASSERT_TRUE(read.is_done());
        ASSERT_EQ(read.answers.at(0).found.at(0).value, "v");
        ++counts_.done;
      } catch (const OutcomeUnknown&) {
        // Where the guard did not remember that the fence is there already.
        ASSERT_EQ(direct_.advance(claim).verdict, Verdict::admitted);
      } catch (const Unavailable&) {
        ++counts_.nothing;
      }
      ASSERT_EQ(space_.fence(), fmt::format("{} - open h", token_));
    });
  }
  EXPECT_GT(counts_.unknown, 10 / slowdown);
  EXPECT_GT(counts_.done, 50 / slowdown);
  EXPECT_GT(counts_.nothing, 10 / slowdown);
}

// Own compares that fail, on the way to an advance: never said to have been written, and once it is known
// that they failed, not even perhaps.
TEST_F(EtcdGuardCut, ACutOnTheWayOfFailedComparesNeverWrites) {
  const std::vector<etcd::Compare> never{etcd::value_is(space_.key("lock"), "mine")};
  cut_everywhere(Proxy::Direction::to_client, [&](etcd::Guard& guard) {
    const auto claim = claim_of(++token_);
    const auto raised = fmt::format("{} - open h", token_);
    try {
      const auto written = guard.write(claim, {put(space_.key(), "v")}, never);
      ASSERT_FALSE(written.compares_held);
      ASSERT_EQ(space_.fence(), raised);
      ++counts_.done;
    } catch (const OutcomeUnknown&) {
      ++counts_.unknown;
      ASSERT_NE(space_.fence(), raised) << "the compares had failed: the write's end was known";
    } catch (const Unavailable&) {
      if (space_.fence() == raised) ++counts_.nothing;
    }
    ASSERT_EQ(space_.value(), "");
  });
  EXPECT_GT(counts_.unknown, 3 / slowdown);
  EXPECT_GT(counts_.nothing, 3 / slowdown);
  EXPECT_GT(counts_.done, 0);
}

}  // namespace
}  // namespace fenceguard::test
