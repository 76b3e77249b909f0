// Leases through the control side: granted and advanced, waited for in order, and taken back where nobody got
// them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "adapters/sqlite/storage.hpp"
#include "server/leases/lease_service.hpp"
#include "tests/sidecar/running.hpp"

namespace fenceguard::test {
namespace {

using namespace std::chrono_literals;
using http::eventually;
using testing::HasSubstr;
using testing::Not;

class LeasesTest : public testing::Test {
 protected:
  [[nodiscard]] bool are_waiting(int count) {
    return eventually([&] { return running_.metric("fenceguard_leases_waiting") == count; });
  }
  // The claim of a new lease, once nobody is counted as waiting: it may be for a moment after its answer.
  Pairs hold(const std::string& members) {
    auto claim = granted_claim(running_.acquire(members));
    EXPECT_TRUE(are_waiting(0));
    return claim;
  }
  std::future<http::Response> acquire_soon(const std::string& members) {
    return std::async(std::launch::async, [this, members] { return running_.acquire(members); });
  }
  // Sends an acquire on a connection that the test can break.
  http::RawClient ask(const std::string& json) {
    http::RawClient client{running_.sidecar().control_address()};
    client.send(
        "POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
        std::to_string(json.size()) + "\r\n\r\n" + json);
    return client;
  }
  double events(const std::string& event) {
    return running_.metric("fenceguard_leases_total{event=\"" + event + "\"}");
  }
  bool is_free(const std::string& resource) {
    return eventually([&] { return !running_.lease(resource); });
  }

  static RunningOptions patient() {
    RunningOptions options;
    options.sidecar.drain_timeout = 60s;
    return options;
  }

  Running running_{patient()};
};

TEST_F(LeasesTest, AGrantWasAdvancedBeforeItIsAnswered) {
  const auto lease = running_.acquire(R"("resource":"accounts/42","ttl_ms":60000)");
  EXPECT_EQ(lease.status, 201U);
  const auto body = json_of(lease);
  EXPECT_EQ(body.at("resource"), "accounts/42");
  EXPECT_EQ(body.at("ttl_ms"), 60000);
  EXPECT_EQ(body.at("holder").as_string().size(), 32U);
  const auto fence = json_of(running_.control("GET", "/v1/fences/accounts/42"));
  EXPECT_EQ(fence.at("token"), body.at("token"));
  EXPECT_EQ(running_.data("PUT", "/accounts/42", granted_claim(lease), "x").status, 201U);
  EXPECT_EQ(events("acquired"), 1);
}

TEST_F(LeasesTest, TheSameHolderAgainHasTheSameToken) {
  const std::string members = R"("resource":"a","holder":"me","ttl_ms":60000)";
  const auto first = running_.acquire(members);
  const auto again = running_.acquire(members);
  EXPECT_EQ(first.status, 201U);
  EXPECT_EQ(again.status, 200U);
  EXPECT_EQ(json_of(first).at("token"), json_of(again).at("token"));
}

TEST_F(LeasesTest, AHeldLockIs409WithoutTheHoldersName) {
  running_.acquire(R"("resource":"a","holder":"the-present-holder","ttl_ms":86400000)");
  const auto refused = running_.acquire(R"("resource":"a")");
  EXPECT_EQ(refused.status, 409U);
  EXPECT_EQ(problem_of(refused), "held");
  const auto seconds = std::stoi(field(refused, "Retry-After"));
  EXPECT_LE(seconds, 86400);
  EXPECT_GT(seconds, 86000);
  EXPECT_EQ(field(refused, "Fencing-Verdict"), "");
  EXPECT_THAT(refused.body, Not(HasSubstr("the-present-holder")));
  const auto shown = running_.control("GET", "/v1/leases/a");
  EXPECT_EQ(shown.status, 200U);
  EXPECT_THAT(shown.body, Not(HasSubstr("the-present-holder")));
  EXPECT_GT(json_of(shown).at("ttl_ms").as_int64(), 0);
  EXPECT_EQ(running_.control("GET", "/v1/leases/b").status, 404U);
}

TEST_F(LeasesTest, ALeaseIsRenewedAndReleasedByItsHolderOnly) {
  const auto claim = granted_claim(running_.acquire(R"("resource":"a","ttl_ms":60000)"));
  const auto renewed = running_.control("PUT", "/v1/leases/a", R"({"ttl_ms":90000})", claim);
  EXPECT_EQ(renewed.status, 200U);
  EXPECT_EQ(json_of(renewed).at("ttl_ms"), 90000);
  const auto stranger = claim_fields(std::stoll(claim[0].second), "stranger");
  EXPECT_EQ(problem_of(running_.control("PUT", "/v1/leases/a", {}, stranger)), "lost");
  EXPECT_EQ(running_.release("a", stranger).status, 412U);
  EXPECT_EQ(running_.control("PUT", "/v1/leases/a").status, 428U);
  EXPECT_EQ(running_.release("a", {}).status, 428U);
  EXPECT_EQ(running_.release("a", {{"Fencing-Token", "01"}}).status, 400U);
  EXPECT_EQ(running_.release("a", claim).status, 204U);
  EXPECT_EQ(running_.release("a", claim).status, 412U);
}

TEST_F(LeasesTest, WaitersAreServedInTheOrderInWhichTheyCame) {
  auto claim = hold(R"("resource":"a","ttl_ms":60000)");
  auto first = acquire_soon(R"("resource":"a","ttl_ms":60000,"wait_ms":30000,"holder":"first")");
  ASSERT_TRUE(are_waiting(1));
  auto second = acquire_soon(R"("resource":"a","ttl_ms":60000,"wait_ms":30000,"holder":"second")");
  ASSERT_TRUE(are_waiting(2));
  running_.release("a", claim);
  claim = granted_claim(first.get());
  EXPECT_EQ(claim[1].second, "first");
  EXPECT_EQ(second.wait_for(0s), std::future_status::timeout);
  running_.release("a", claim);
  EXPECT_EQ(granted_claim(second.get())[1].second, "second");
}

TEST_F(LeasesTest, AWaitEndsWithHeld) {
  running_.acquire(R"("resource":"a","ttl_ms":60000)");
  const auto begun = BootClock::now();
  EXPECT_EQ(running_.acquire(R"("resource":"a","wait_ms":200)").status, 409U);
  EXPECT_GE(BootClock::now() - begun, 200ms);
  EXPECT_TRUE(are_waiting(0));
}

TEST_F(LeasesTest, AnExpiredLeaseIsTakenByWhoeverWaits) {
  running_.acquire(R"("resource":"a","ttl_ms":300)");
  EXPECT_EQ(running_.acquire(R"("resource":"a","wait_ms":30000)").status, 201U);
}

TEST_F(LeasesTest, AWaiterThatGoesAwayIsWithdrawn) {
  const auto claim = hold(R"("resource":"a","ttl_ms":60000)");
  auto waiter = ask(R"({"resource":"a","wait_ms":600000,"ttl_ms":60000})");
  ASSERT_TRUE(are_waiting(1));
  waiter.close();
  EXPECT_TRUE(eventually([&] { return events("withdrawn") == 1; }));
  running_.release("a", claim);
  EXPECT_EQ(running_.acquire(R"("resource":"a")").status, 201U);
}

// The caller goes away after the source has granted and before anybody could be told.
TEST_F(LeasesTest, ACallerThatIsGoneBeforeItsAnswerLosesItsLease) {
  running_.source().granted.close();
  auto caller = ask(R"({"resource":"a","ttl_ms":600000})");
  ASSERT_TRUE(running_.source().granted.wait_for_calls());
  EXPECT_TRUE(running_.lease("a"));
  caller.reset();
  running_.source().granted.open();
  EXPECT_TRUE(is_free("a"));
}

// The same holder asks again while its first ask, whose caller is gone, is still under way.
TEST_F(LeasesTest, TheSameHolderThatHasAskedAgainKeepsItsLease) {
  running_.source().granted.close();
  const std::string json = R"({"resource":"a","ttl_ms":600000,"holder":"me"})";
  auto caller = ask(json);
  ASSERT_TRUE(running_.source().granted.wait_for_calls());
  auto again = acquire_soon(json.substr(1, json.size() - 2));
  ASSERT_TRUE(are_waiting(2));
  caller.reset();
  running_.source().granted.open();
  const auto answer = again.get();
  EXPECT_TRUE(answer.status == 200 || answer.status == 201) << answer.status;
  EXPECT_TRUE(eventually([&] { return events("withdrawn") + events("undelivered") == 1; }));
  const auto lease = running_.lease("a");
  ASSERT_TRUE(lease);
  EXPECT_EQ(to_string(lease->claim.token), std::string{json_of(answer).at("token").as_string()});
}

TEST_F(LeasesTest, AnAdvanceThatFailsGivesTheLeaseBack) {
  for (const auto kind : {FaultKind::unavailable, FaultKind::unknown, FaultKind::implausible}) {
    running_.fences().set_fault(kind);
    const auto refused = running_.acquire(R"("resource":"a","ttl_ms":600000)");
    EXPECT_EQ(refused.status, 503U);
    EXPECT_NE(field(refused, "Retry-After"), "");
    EXPECT_FALSE(running_.lease("a")) << "nobody may hold a lease that was not advanced";
    running_.fences().set_fault(std::nullopt);
  }
  EXPECT_EQ(running_.acquire(R"("resource":"a")").status, 201U);
}

// Of a lease under a name that the guard has chosen itself nobody else can have heard.
TEST_F(LeasesTest, AGrantToNobodyWhoseAnswerWasLostIsGivenBackAndUnknown) {
  running_.source().loses_answers = true;
  const auto lost = running_.acquire(R"("resource":"a","ttl_ms":600000)");
  EXPECT_EQ(lost.status, 500U);
  EXPECT_EQ(problem_of(lost), "unknown");
  EXPECT_FALSE(running_.lease("a"));
  running_.source().loses_answers = false;
  EXPECT_EQ(running_.acquire(R"("resource":"a")").status, 201U);
}

// The holder has its lease, asks again, and this time the source's answer is lost.
TEST_F(LeasesTest, AskingAgainLosesNoLeaseThatWasDelivered) {
  const std::string members = R"("resource":"a","ttl_ms":600000,"holder":"me")";
  const auto claim = granted_claim(running_.acquire(members));
  running_.source().loses_answers = true;
  const auto again = running_.acquire(members);
  EXPECT_EQ(again.status, 500U);
  EXPECT_EQ(problem_of(again), "unknown");
  ASSERT_TRUE(running_.lease("a"));
  EXPECT_EQ(running_.control("PUT", "/v1/leases/a", {}, claim).status, 200U);
  running_.source().loses_answers = false;
  EXPECT_EQ(granted_claim(running_.acquire(members)), claim);
}

TEST_F(LeasesTest, AGrantToANamedHolderWhoseAnswerWasLostCanBeAskedForAgain) {
  const std::string members = R"("resource":"a","ttl_ms":600000,"holder":"me")";
  running_.source().loses_answers = true;
  EXPECT_EQ(problem_of(running_.acquire(members)), "unknown");
  const auto lease = running_.lease("a");
  ASSERT_TRUE(lease);
  running_.source().loses_answers = false;
  EXPECT_EQ(granted_claim(running_.acquire(members))[0].second, to_string(lease->claim.token));
}

// The holder asks again for what it was granted and not told of, and the guard cannot be advanced: the lease
// stands, so its answer is no 'nothing happened'.
TEST_F(LeasesTest, AskingAgainIsUnknownWhereTheLeaseStandsAndTheAdvanceFails) {
  const std::string members = R"("resource":"a","ttl_ms":600000,"holder":"me")";
  running_.source().loses_answers = true;
  EXPECT_EQ(problem_of(running_.acquire(members)), "unknown");
  running_.source().loses_answers = false;
  running_.fences().set_fault(FaultKind::unavailable);
  EXPECT_EQ(problem_of(running_.acquire(members)), "unknown");
  EXPECT_TRUE(running_.lease("a"));
  running_.fences().set_fault(std::nullopt);
  EXPECT_EQ(running_.acquire(members).status, 200U);
}

// The source has not seen the request yet when the guard looks for what became of it.
TEST_F(LeasesTest, ALookThatFindsNothingDoesNotMakeAnUnknownGrantCertain) {
  running_.source().delays_requests = true;
  EXPECT_EQ(problem_of(running_.acquire(R"("resource":"a","ttl_ms":600000)")), "unknown");
  EXPECT_EQ(problem_of(running_.acquire(R"("resource":"a","ttl_ms":600000,"holder":"me")")), "unknown");
}

TEST_F(LeasesTest, ALeaseThatCannotBeGivenBackIsUnknown) {
  running_.source().refuses_releases = true;
  running_.fences().set_fault(FaultKind::unavailable);
  EXPECT_EQ(problem_of(running_.acquire(R"("resource":"a","ttl_ms":600000)")), "unknown");
  EXPECT_TRUE(running_.lease("a"));
}

// The source hangs where it is asked for new leases, and more ask than there are threads.
TEST_F(LeasesTest, ALiveLeaseIsRenewedWhileTheSourceHangsOverNewOnes) {
  const auto claim = hold(R"("resource":"mine","ttl_ms":60000)");
  running_.source().asking.close();
  std::vector<std::future<http::Response>> others;
  for (std::size_t i = 0; i < 2 * LeaseService::threads; ++i)
    others.push_back(acquire_soon(R"("resource":"other/)" + std::to_string(i) + "\""));
  ASSERT_TRUE(running_.source().asking.wait_for_calls(LeaseService::threads));
  ASSERT_TRUE(are_waiting(static_cast<int>(others.size())));
  auto renewed = std::async(std::launch::async, [&] {
    return running_.control("PUT", "/v1/leases/mine", R"({"ttl_ms":90000})", claim);
  });
  EXPECT_EQ(renewed.wait_for(http::patience), std::future_status::ready);
  running_.source().asking.open();
  EXPECT_EQ(renewed.get().status, 200U);
  for (auto& other : others) EXPECT_EQ(other.get().status, 201U);
}

// The advance takes longer than a quarter of the lease, as where it waits for an older write.
TEST_F(LeasesTest, ALeaseIsRenewedBeforeItIsHandedOutWhereTheAdvanceTookLong) {
  running_.fences().advancing.close();
  auto asked = acquire_soon(R"("resource":"a","ttl_ms":8000,"wait_ms":30000)");
  ASSERT_TRUE(running_.fences().advancing.wait_for_calls());
  ASSERT_TRUE(eventually([&] {
    const auto lease = running_.lease("a");
    return !lease || lease->remaining < 5s;
  }));
  running_.source().renewing.close();
  running_.fences().advancing.open();
  EXPECT_TRUE(running_.source().renewing.wait_for_calls());
  running_.source().renewing.open();
  EXPECT_EQ(asked.get().status, 201U);
}

TEST_F(LeasesTest, LeaseEndedDuringTheAdvanceIsAskedForAgain) {
  running_.fences().advancing.close();
  auto asked = acquire_soon(R"("resource":"a","ttl_ms":300,"wait_ms":30000)");
  ASSERT_TRUE(running_.fences().advancing.wait_for_calls());
  ASSERT_TRUE(is_free("a"));
  running_.fences().advancing.open();
  const auto lease = asked.get();
  EXPECT_EQ(lease.status, 201U);
  EXPECT_NE(json_of(lease).at("token"), "1") << "that one is over";
}

TEST_F(LeasesTest, ALeaseThatEndedDuringTheAdvanceIsNotHandedOut) {
  running_.fences().advancing.close();
  auto asked = acquire_soon(R"("resource":"a","ttl_ms":300)");
  ASSERT_TRUE(running_.fences().advancing.wait_for_calls());
  ASSERT_TRUE(is_free("a"));
  running_.fences().advancing.open();
  const auto refused = asked.get();
  EXPECT_EQ(refused.status, 503U);
  EXPECT_NE(field(refused, "Retry-After"), "");
  EXPECT_THAT(refused.body, HasSubstr("longer ttl_ms"));
  EXPECT_FALSE(running_.lease("a"));
}

TEST_F(LeasesTest, AStopAnswersWhoeverWaitsAndIsClean) {
  hold(R"("resource":"a","ttl_ms":60000)");
  auto waiter = acquire_soon(R"("resource":"a","wait_ms":600000)");
  ASSERT_TRUE(are_waiting(1));
  EXPECT_TRUE(running_.sidecar().stop());
  EXPECT_EQ(waiter.get().status, 503U);
}

TEST_F(LeasesTest, ManyCallersOfOneLockAreGrantedOneAtATime) {
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::vector<std::future<void>> callers;
  for (int i = 0; i < 12; ++i) {
    callers.push_back(std::async(std::launch::async, [&] {
      const auto lease = running_.acquire(R"("resource":"a","ttl_ms":60000,"wait_ms":60000)");
      ASSERT_EQ(lease.status, 201U);
      most = std::max(most.load(), ++inside);
      EXPECT_LT(running_.data("PUT", "/a", granted_claim(lease), "x").status, 300U);
      --inside;
      EXPECT_EQ(running_.release("a", granted_claim(lease)).status, 204U);
    }));
  }
  for (auto& caller : callers) caller.get();
  EXPECT_EQ(most.load(), 1);
}

// The guard has seen a higher token than its source will draw next, as after a restore of the source's
// backup.
TEST(Leases, ASourceBehindTheGuardIsRaisedAndTheLeaseTakenAgain) {
  RunningOptions options;
  options.has_own_source = false;
  const Running running{std::move(options)};
  EXPECT_EQ(running.control("POST", "/v1/fences/a/advance", {}, claim_fields(1000)).status, 200U);
  const auto lease = running.acquire(R"("resource":"a","ttl_ms":600000)");
  EXPECT_EQ(lease.status, 201U);
  EXPECT_EQ(json_of(lease).at("token"), "1001");
  EXPECT_EQ(running.data("PUT", "/a", granted_claim(lease), "x").status, 201U);
  EXPECT_EQ(running.metric("fenceguard_source_regressions_total"), 1);
}

// The source repeats a number that another holder has advanced with.
TEST(Leases, ANumberIssuedTwiceIsCountedAndTheLeaseTakenAgain) {
  RunningOptions options;
  options.has_own_source = false;
  const Running running{std::move(options)};
  EXPECT_EQ(running.control("POST", "/v1/fences/a/advance", {}, claim_fields(1, "another")).status, 200U);
  const auto lease = running.acquire(R"("resource":"a","ttl_ms":600000)");
  EXPECT_EQ(lease.status, 201U);
  EXPECT_EQ(json_of(lease).at("token"), "2");
  EXPECT_EQ(running.metric("fenceguard_token_conflicts_total"), 1);
}

// The service alone, so that no connection is needed for each call.
TEST(Leases, CallsOfASourceThatHangsAreBounded) {
  const test::TempDir folder;
  StorageOptions options;
  options.initialise = true;
  const auto storage = sqlite::open_storage(folder.file("guard.db"), options);
  Metrics metrics{"sqlite"};
  RefusalLog log;
  Gate gate;
  std::atomic<std::size_t> ended{0};
  std::size_t run = 0;
  {
    LeaseService service{*storage->own_source(), storage->fences(), metrics, log};
    const auto call = [&] {
      gate.pass();
      ++ended;
    };
    gate.close();
    for (std::size_t i = 0; i < LeaseService::threads; ++i) run += service.run_renewal(call) ? 1 : 0;
    ASSERT_TRUE(gate.wait_for_calls(LeaseService::threads));
    for (std::size_t i = 0; i < 2 * LeaseService::calls_max; ++i) run += service.run_renewal(call) ? 1 : 0;
    EXPECT_EQ(run, LeaseService::threads + LeaseService::calls_max);
    EXPECT_TRUE(service.run_blocking([] {})) << "the other calls have room of their own";
    gate.open();
  }
  EXPECT_EQ(ended, run);
}

// The guard has seen a higher token than the lease that the holder asks for again, and the source does not
// say whether that one is still held.
TEST(Leases, DeliveredLeaseIsKeptIfTheSourceCannotBeRaised) {
  RunningOptions options;
  options.has_own_source = false;
  Running running{std::move(options)};
  const std::string members = R"("resource":"a","ttl_ms":600000,"holder":"me")";
  EXPECT_EQ(running.acquire(members).status, 201U);
  EXPECT_EQ(running.control("POST", "/v1/fences/a/advance", {}, claim_fields(1000)).status, 200U);
  running.source().loses_renewals = true;
  EXPECT_EQ(problem_of(running.acquire(members)), "unknown");
  EXPECT_TRUE(running.lease("a"));
}

}  // namespace
}  // namespace fenceguard::test
