// A sidecar from its start to its end: not initialised, ready, draining, stopped.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "guard/error.hpp"
#include "tests/sidecar/running.hpp"

namespace fenceguard::test {
namespace {

using namespace std::chrono_literals;
using http::eventually;
using testing::HasSubstr;

// A PUT of four bytes of which two are sent; returns once the server waits for the rest.
void begin_put(http::RawClient& client) {
  client.send(
      "PUT /a HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\nExpect: 100-continue\r\nContent-Length: "
      "4\r\n\r\n");
  EXPECT_EQ(client.receive(true).status, 100U);
  client.send("ab");
}

TEST(Lifecycle, WithoutStateItIsNotReadyAndWritesNothing) {
  RunningOptions options;
  options.storage.initialise = false;
  const Running running{std::move(options)};
  const auto ready = running.control("GET", "/readyz");
  EXPECT_EQ(ready.status, 503U);
  EXPECT_THAT(ready.body, HasSubstr("fence init"));
  EXPECT_EQ(running.control("GET", "/healthz").status, 200U);
  EXPECT_EQ(running.data("PUT", "/a", claim_fields(1), "x").status, 503U);
  EXPECT_EQ(running.data("GET", "/a", claim_fields(1)).status, 503U);
  EXPECT_EQ(running.control("POST", "/v1/fences/a/advance", {}, claim_fields(1)).status, 503U);
  EXPECT_EQ(running.acquire(R"("resource":"a","ttl_ms":600000)").status, 503U);
  EXPECT_FALSE(running.lease("a"));
}

// A PUT whose body is still coming when the stop begins is answered; probes say meanwhile that we are going.
TEST(Lifecycle, AStopLetsWhatWasBegunEndAndIsNotReadyMeanwhile) {
  RunningOptions options;
  options.sidecar.drain_timeout = 60s;
  Running running{std::move(options)};
  http::RawClient client{running.sidecar().data_address()};
  begin_put(client);
  auto stopped = std::async(std::launch::async, [&] { return running.sidecar().stop(); });
  EXPECT_TRUE(eventually([&] { return running.control("GET", "/readyz").status == 503; }));
  EXPECT_EQ(stopped.wait_for(0s), std::future_status::timeout);
  client.send("cd");
  EXPECT_EQ(client.receive().status, 201U);
  EXPECT_TRUE(stopped.get());
  EXPECT_THROW((void)running.data("GET", "/a"), Unavailable);
}

TEST(Lifecycle, AStopCutsWhatDoesNotEndInTime) {
  RunningOptions options;
  options.sidecar.drain_timeout = 100ms;
  Running running{std::move(options)};
  http::RawClient client{running.sidecar().data_address()};
  begin_put(client);
  EXPECT_FALSE(running.sidecar().stop());
  EXPECT_FALSE(running.sidecar().stop());  // a second stop changes nothing
}

TEST(Lifecycle, APortInUseIsSaidAndNothingIsLeftRunning) {
  const Running first;
  RunningOptions options;
  options.sidecar.listen = first.sidecar().data_address();
  try {
    const Running second{std::move(options)};
    FAIL() << "both serve on one port";
  } catch (const Unavailable& error) {
    EXPECT_THAT(error.what(), HasSubstr("listens there already"));
  }
}

// A step of the service is still under way when the time for draining is over: its lease is not left behind.
TEST(Lifecycle, AStopDuringAGrantLeavesNoLeaseThatNobodyGot) {
  RunningOptions options;
  options.sidecar.drain_timeout = 50ms;
  Running running{std::move(options)};
  running.source().granted.close();
  auto caller = std::async(std::launch::async, [&] {
    try {
      return running.acquire(R"("resource":"a","ttl_ms":600000)").status;
    } catch (const Error&) {
      return 0U;  // cut
    }
  });
  ASSERT_TRUE(running.source().granted.wait_for_calls());
  auto stopped = std::async(std::launch::async, [&] { return running.sidecar().stop(); });
  EXPECT_EQ(caller.get(), 0U);
  running.source().granted.open();
  EXPECT_FALSE(stopped.get());
  EXPECT_FALSE(running.lease("a"));
}

}  // namespace
}  // namespace fenceguard::test
