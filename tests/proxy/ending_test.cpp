// How a write ended, as far as the proxy can know: only a complete answer says it. Whatever else happens the
// client is told that it is unknown, and the resource stays closed until the settle time is over.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "server/proxy/upstream/upstream_pool.hpp"
#include "tests/proxy/guarded.hpp"
#include "tests/proxy/upstream/upstream.hpp"

namespace fenceguard::test {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

using Clock = std::chrono::steady_clock;

// Where the upstream does not answer. Where it does, a time-out must be far longer than it may stand still.
constexpr auto short_timeout = slowdown == 1 ? 2s : 6s;

GuardedOptions options_with(std::chrono::milliseconds settle) {
  GuardedOptions options;
  options.lane.settle = settle;
  return options;
}

GuardedOptions impatient(std::chrono::milliseconds settle) {
  auto options = options_with(settle);
  options.lane.upstream_timeout = short_timeout;
  return options;
}

class EndingTest : public testing::Test {
 protected:
  static constexpr std::chrono::milliseconds short_settle = 400ms * slowdown;

  explicit EndingTest(GuardedOptions options = options_with(short_settle))
      : settle_{options.lane.settle}, guarded_{upstream_.url(), std::move(options)} {}
  ~EndingTest() override { EXPECT_THAT(upstream_.anomalies(), IsEmpty()); }

  // ended: before this moment the write's end was not known to be lost. Only a machine that takes longer than
  // the settle time to look finds the resource open again.
  void expect_closed(const std::string& target, std::int64_t token, Clock::time_point ended) {
    EXPECT_EQ(guarded_.service().lanes().settle_closures, 1);
    const auto closed = guarded_.put(target, token);
    if (closed.status / 100 == 2 && Clock::now() >= ended + settle_) return;
    EXPECT_EQ(closed.status, 503U);
    EXPECT_EQ(verdict(closed), "unavailable");
    EXPECT_NE(field(closed, "Retry-After"), "");
  }
  void expect_open_in_time(const std::string& target) {
    EXPECT_TRUE(http::eventually([&] { return guarded_.put(target, 99).status / 100 == 2; }));
  }

  const std::chrono::milliseconds settle_;
  Upstream upstream_{keeps_connections};
  Guarded guarded_;
};

struct Case {
  const char* words;
  unsigned status;            // of the answer
  bool is_timed_out = false;  // by the guard
};
void PrintTo(const Case& tried, std::ostream* out) {
  *out << tried.words;
}

class UnknownEndingTest : public EndingTest, public testing::WithParamInterface<Case> {
 protected:
  UnknownEndingTest()
      : EndingTest{GetParam().is_timed_out ? impatient(short_settle) : options_with(short_settle)} {}
};

TEST_P(UnknownEndingTest, IsToldAsUnknownAndClosesTheResourceForTheSettleTime) {
  const auto& [words, status, is_timed_out] = GetParam();
  ASSERT_EQ(guarded_.put("/a", 1).status, 201U);
  const auto sent = Clock::now();
  const auto response = guarded_.put("/a", 2, words);
  expect_closed("/a", 99, is_timed_out ? sent + short_timeout : sent);
  EXPECT_EQ(response.status, status);
  EXPECT_EQ(verdict(response), "unknown");
  EXPECT_EQ(field(response, "Fencing-Highest"), "2");
  EXPECT_EQ(guarded_.metric("fenceguard_unknown_total"), 1);
  EXPECT_EQ(guarded_.put("/other", 1).status, 201U) << "other resources stay open";
  const auto first = upstream_.wait_for("seen", 3);
  EXPECT_NE(first[1].connection, first[2].connection) << "its connection is not used again";
  expect_open_in_time("/a");
  EXPECT_EQ(guarded_.service().lanes().settle_closures, 1);
}

INSTANTIATE_TEST_SUITE_P(
    All, UnknownEndingTest,
    testing::Values(Case{"never", 504, true}, Case{"hold-answer=30s", 504, true}, Case{"drop", 502},
                    Case{"reset", 502}, Case{"apply-reset", 502}, Case{"status=202", 502},
                    Case{"status=408", 504}, Case{"status=502", 502}, Case{"status=503", 502},
                    Case{"status=504", 504}, Case{"status=460", 502}, Case{"status=499", 502},
                    Case{"status=506", 502}, Case{"status=520", 502}, Case{"status=599", 502},
                    Case{"status=200 half body=100", 502}, Case{"status=200 half chunked body=100", 502},
                    Case{"half-head", 502}, Case{"garbage", 502}, Case{"both-framings body=5", 502},
                    Case{"field=Content-Length_:5 field=Bad(Name:x", 502},
                    Case{"field=Transfer-Encoding:gzip until-close", 502}, Case{"interim=101", 502}));

class KnownEndingTest : public EndingTest, public testing::WithParamInterface<Case> {};

TEST_P(KnownEndingTest, IsToldAsTheStorageSaidItAndClosesNothing) {
  const auto& [words, status, is_timed_out] = GetParam();
  guarded_.put("/a", 1);
  const auto response = guarded_.put("/a", 2, words);
  EXPECT_EQ(response.status, status);
  EXPECT_EQ(verdict(response), "admitted");
  EXPECT_EQ(guarded_.service().lanes().closed, 0);
  EXPECT_EQ(guarded_.put("/a", 2).status, 204U);
}

INSTANTIATE_TEST_SUITE_P(
    All, KnownEndingTest,
    testing::Values(Case{"status=200 body=10", 200}, Case{"status=207 body=10 chunked", 207},
                    Case{"status=200 until-close body=10", 200}, Case{"status=200 http10 body=10", 200},
                    Case{"status=201 close", 201}, Case{"status=404", 404}, Case{"status=409", 409},
                    Case{"status=500", 500}, Case{"status=501", 501}, Case{"status=302", 302},
                    Case{"interim=103", 204}, Case{"interim=100", 204}, Case{"status=303", 303},
                    Case{"status=304", 304}, Case{"status=505", 505}, Case{"status=507 body=9", 507},
                    Case{"status=511", 511}, Case{"status=301", 301}, Case{"status=307", 307},
                    Case{"slow=2ms status=200 body=20 chunked", 200}));

// Of writes with a sequence: what proves that nothing was done leaves the sequence free, what says that it
// was done uses it up, and what says neither is unknown.
class SequenceTest : public EndingTest {
 protected:
  http::Response post(const std::string& words) {
    return guarded_.send("POST", "/a", claim(1, {{"Fencing-Sequence", "7"}, {"Upstream-Do", words}}), "x");
  }
};

class RefusedSequenceTest : public SequenceTest, public testing::WithParamInterface<unsigned> {};

TEST_P(RefusedSequenceTest, StaysFreeForAnotherTry) {
  const auto refused = post("status=" + std::to_string(GetParam()));
  EXPECT_EQ(refused.status, GetParam());
  EXPECT_EQ(verdict(refused), "admitted");
  EXPECT_EQ(post("status=200").status, 200U);
  EXPECT_EQ(verdict(post("status=200")), "duplicate");
  EXPECT_THAT(upstream_.seen(), SizeIs(2));
}

INSTANTIATE_TEST_SUITE_P(All, RefusedSequenceTest, testing::Values(300, 304, 305, 307, 308, 404, 409, 412));

class DoubtfulSequenceTest : public SequenceTest, public testing::WithParamInterface<unsigned> {};

TEST_P(DoubtfulSequenceTest, IsUnknownAndClosesTheResource) {
  const auto sent = Clock::now();
  const auto answer = post("status=" + std::to_string(GetParam()));
  expect_closed("/a", 99, sent);
  EXPECT_EQ(answer.status, 502U);
  EXPECT_EQ(verdict(answer), "unknown");
  expect_open_in_time("/a");
}

INSTANTIATE_TEST_SUITE_P(All, DoubtfulSequenceTest, testing::Values(207, 301, 302, 306, 500));

TEST_F(SequenceTest, IsUsedUpByARedirectThatSaysThatTheWriteWasCarriedOut) {
  EXPECT_EQ(post("status=303").status, 303U);
  EXPECT_EQ(verdict(post("status=303")), "duplicate");
  EXPECT_THAT(upstream_.seen(), SizeIs(1));
}

TEST_F(EndingTest, ASecondAnswerIsNeverTakenForTheNextRequests) {
  EXPECT_EQ(guarded_.put("/a", 1, "twice status=200 body=7").status, 200U);
  // The second answer is in the kernel's hands now.
  EXPECT_THAT(upstream_.wait_for("answered"), SizeIs(1));
  EXPECT_EQ(guarded_.send("GET", "/none").status, 404U);
}

TEST_F(EndingTest, AWriteOnAKeptConnectionThatEndsIsNeverSentTwiceAndAReadIs) {
  // The upstream takes the connection away between two requests without having said so, at the moment when
  // the second is on its way.
  for (int round = 0; round < scaled(16); ++round) {
    const auto before = upstream_.seen().size();
    guarded_.send("GET", "/a", {{"Upstream-Do", "hang-up"}});
    EXPECT_EQ(guarded_.send("GET", "/a").status, 404U);
    EXPECT_EQ(upstream_.seen().size(), before + 2);
    std::this_thread::sleep_for(2 * proxy::UpstreamPool::rest_min);
    guarded_.send("GET", "/a", {{"Upstream-Do", "hang-up"}});
    const auto target = "/w" + std::to_string(round);
    const auto write = guarded_.put(target, 1);
    EXPECT_TRUE(write.status == 201 || verdict(write) == "unknown") << write.status;
    EXPECT_LE(upstream_.seen().size(), before + 4);
  }
}

TEST_F(EndingTest, AReadWhoseConnectionEndsWithoutAWordIsTriedOnceMoreOnANewOne) {
  EXPECT_EQ(guarded_.send("GET", "/a").status, 404U);
  std::this_thread::sleep_for(2 * proxy::UpstreamPool::rest_min);
  const auto read = guarded_.send("GET", "/a", {{"Upstream-Do", "drop"}});
  EXPECT_EQ(read.status, 502U);
  EXPECT_THAT(upstream_.seen(), SizeIs(3)) << "on the kept connection, and once on a new one";
  EXPECT_EQ(guarded_.send("GET", "/a", {{"Upstream-Do", "drop"}}).status, 502U);
  EXPECT_THAT(upstream_.seen(), SizeIs(4)) << "a new connection that ends is an answer";
}

TEST_F(EndingTest, AWriteWhoseConnectionEndsWithoutAWordIsSentOnce) {
  EXPECT_EQ(guarded_.send("GET", "/a").status, 404U);
  std::this_thread::sleep_for(2 * proxy::UpstreamPool::rest_min);
  EXPECT_EQ(verdict(guarded_.put("/a", 1, "drop")), "unknown");
  EXPECT_THAT(upstream_.seen(), SizeIs(2)) << "on the kept connection, and on no other one";
}

class UnansweredTest : public EndingTest {
 protected:
  UnansweredTest() : EndingTest{impatient(4s)} {}
};

TEST_F(UnansweredTest, AReadThatIsNotAnsweredIsNoUnknownWrite) {
  EXPECT_EQ(guarded_.send("GET", "/a", {{"Upstream-Do", "never"}}).status, 504U);
  const auto odd = guarded_.send("GET", "/a", claim(1, {{"Upstream-Do", "garbage"}}));
  EXPECT_EQ(odd.status, 502U);
  EXPECT_EQ(verdict(odd), "unavailable");
  EXPECT_EQ(guarded_.service().lanes().closed, 0);
  EXPECT_EQ(guarded_.metric("fenceguard_unknown_total"), 0);
}

TEST_F(EndingTest, TheTakeOverWaitsForTheOlderWriteAndFollowsIt) {
  guarded_.put("/a", 33);
  auto older = std::async(std::launch::async, [&] { return guarded_.put("/a", 34, "hold=300ms", "old"); });
  ASSERT_THAT(upstream_.wait_for("seen", 2), SizeIs(2));
  auto newer = std::async(std::launch::async, [&] { return guarded_.put("/a", 35, "", "new"); });
  auto read = std::async(std::launch::async, [&] { return guarded_.send("GET", "/a", claim(35)); });
  EXPECT_EQ(older.get().status, 204U);
  EXPECT_EQ(newer.get().status, 204U);
  EXPECT_THAT(read.get().body, testing::AnyOf("old", "new"));
  const auto applied = upstream_.applied();
  ASSERT_THAT(applied, SizeIs(3));
  EXPECT_EQ(applied[1].body, "old");
  EXPECT_EQ(applied[2].body, "new");
  EXPECT_EQ(guarded_.put("/a", 34).status, 412U);
}

TEST_F(UnansweredTest, AfterAnUnknownWriteTheNextHolderIsClosedOutUntilItHasSettled) {
  // 34 is delivered and held; it times out here; 35 asks, and asks again: closed, until 34 is certainly over.
  guarded_.put("/a", 33);
  const auto sent = Clock::now();
  const auto lost = guarded_.put("/a", 34, "hold=4s");
  if constexpr (slowdown == 1) {
    EXPECT_EQ(lost.status, 504U);
    expect_closed("/a", 35, sent + short_timeout);
    expect_closed("/a", 35, sent + short_timeout);
  }
  EXPECT_TRUE(http::eventually([&] { return guarded_.put("/a", 35, "", "new").status == 204; }));
  EXPECT_EQ(upstream_.applied().back().body, "new");
}

// The slow one waits until the quick one has taken effect.
TEST_F(EndingTest, TwoWritesUnderOneTokenRunSideBySide) {
  guarded_.put("/a", 34);
  auto slow = std::async(std::launch::async, [&] { return guarded_.put("/a", 34, "await=2", "slow"); });
  ASSERT_THAT(upstream_.wait_for("seen", 2), SizeIs(2));
  EXPECT_EQ(guarded_.put("/a", 34, "", "quick").status, 204U);
  EXPECT_EQ(slow.get().status, 204U);
  EXPECT_EQ(upstream_.applied()[1].body, "quick");
}

}  // namespace
}  // namespace fenceguard::test
