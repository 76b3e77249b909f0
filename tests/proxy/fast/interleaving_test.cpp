// What meets a request on the fast path: a newer token, a kernel that takes a part of what is sent, a client
// that goes away, the end of the guard.

#include <fmt/format.h>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <thread>

#include "server/proxy/upstream/upstream_pool.hpp"
#include "tests/proxy/fast/fast_path_case.hpp"

namespace {
// Of what holds it, each send takes so many bytes.
constexpr std::string_view cut_field = "X-Cut: ";
}  // namespace

// In the place of the C library's. The tests' clients do not pass MSG_DONTWAIT.
extern "C" ssize_t send(int socket, const void* data, size_t bytes, int flags) {
  const std::string_view text{static_cast<const char*>(data), bytes};
  const auto at = text.find(cut_field);
  if ((flags & MSG_DONTWAIT) != 0 && at != std::string_view::npos) {
    std::size_t most = bytes;
    std::from_chars(text.data() + at + cut_field.size(), text.data() + bytes, most);
    bytes = std::min(bytes, most);
  }
  return ::syscall(SYS_sendto, socket, data, bytes, flags, nullptr, 0);
}

namespace fenceguard::test {
namespace {

// What enters by a look at its fence must not pass a newer token that waits.
TEST_F(FastPathTest, ANewerTokenThatWaitsIsNotOvertaken) {
  const auto path = next_path();
  fast_.prepare(path);
  auto holder = fast_.guarded().connect();
  ASSERT_TRUE(holder.send(request("PUT", path, "hold=300ms")));
  (void)fast_.upstream().wait_for("seen", 2);
  auto newer = fast_.guarded().connect();
  ASSERT_TRUE(newer.send(bytes_of("PUT", path, claim(token + 1), "new")));
  ASSERT_TRUE(http::eventually([&] { return fast_.guarded().service().lanes().waiting == 1; }) ||
              fast_.upstream().applied().size() == 3);
  auto late = fast_.guarded().connect();
  ASSERT_TRUE(late.send(request("PUT", path, "")));
  EXPECT_EQ(late.receive().status, 412U);
  EXPECT_EQ(holder.receive().status, 204U);
  EXPECT_EQ(newer.receive().status, 204U);
  std::vector<std::string> bodies;
  for (const auto& event : fast_.upstream().applied()) bodies.push_back(event.body);
  EXPECT_THAT(bodies, testing::ElementsAre("x", "body", "new"));
}

// A client that goes away does not make its write known, nor unknown.
TEST_F(FastPathTest, AClientThatGoesAwayLeavesItsWriteToItsEnd) {
  const auto path = next_path();
  fast_.prepare(path);
  auto client = fast_.guarded().connect();
  ASSERT_TRUE(client.send(request("PUT", path, "hold=200ms")));
  (void)fast_.upstream().wait_for("seen", 2);
  client.reset();
  (void)fast_.upstream().wait_for("applied", 2);
  EXPECT_TRUE(http::eventually([&] { return fast_.guarded().service().lanes().in_flight == 0; }));
  EXPECT_EQ(fast_.guarded().service().lanes().settle_closures, 0);
  EXPECT_EQ(fast_.guarded().put(path, token).status, 204U);
}

TEST_F(FastPathTest, ADrainLetsARequestEndAndClosesWhatIsIdle) {
  const auto path = next_path();
  fast_.prepare(path);
  auto drained = fast_.guarded().connect();
  ASSERT_TRUE(drained.send(request("PUT", path, "await=2")));
  (void)fast_.upstream().wait_for("seen", 2);
  auto idle = fast_.guarded().connect();
  ASSERT_TRUE(idle.send(request("GET", "/other", "status=200 body=1")));
  EXPECT_EQ(idle.receive().status, 200U);
  std::jthread drain{[&] { EXPECT_TRUE(fast_.guarded().service().drain(30s)); }};
  EXPECT_TRUE(idle.is_closed_by_server());
  // The drain has begun; a write past the guard lets the request end.
  http::RawClient other{fast_.upstream().address()};
  ASSERT_TRUE(other.send(bytes_of("PUT", "/past", {}, "x")));
  const auto answer = drained.receive();
  EXPECT_EQ(answer.status, 204U);
  EXPECT_EQ(answer.field("Connection"), "close");
}

TEST_F(FastPathTest, ACutEndsAWriteAsUnknown) {
  const auto path = next_path();
  fast_.prepare(path);
  auto client = fast_.guarded().connect();
  ASSERT_TRUE(client.send(request("PUT", path, "never")));
  (void)fast_.upstream().wait_for("seen", 2);
  (void)fast_.guarded().service().drain(100ms);
  const auto told = client.receive_to_end();
  EXPECT_TRUE(told.empty() || told.starts_with("HTTP/1.1 504 ")) << told;
  EXPECT_EQ(fast_.guarded().service().lanes().settle_closures, 1);
}

// Each cut leaves another part of the request for later: of its head, or of its body.
TEST_F(FastPathTest, AWriteThatTheKernelTakesInPartIsSentToItsEnd) {
  for (const auto* words : {"", "hold=20ms", "drop", "half"}) {
    for (const auto* most : {"1", "40", "300", "1000"}) {
      SCOPED_TRACE(fmt::format("{} bytes of it are taken, then {}", most, words));
      const auto path = next_path();
      const auto cut = claim(token, {{"X-Cut", most}, {"Upstream-Do", words}});
      EXPECT_TRUE(expect_same(script_of(bytes_of("PUT", path, cut, std::string(2'000, 'b'))), path));
    }
  }
  EXPECT_EQ(served_fast(), 0U) << "they went on as coroutines";
}

// That the fast path takes such a read is seen by one that nothing overtakes. Without a body the upstream's
// answer comes in one piece.
TEST_F(FastPathTest, AReadThatANewerTokenOvertakesIsNotPassedOn) {
  const auto path = next_path();
  fast_.prepare(path);
  auto reader = fast_.guarded().connect();
  ASSERT_TRUE(reader.send(request("GET", path, "await=1 status=204")));
  EXPECT_EQ(reader.receive().status, 204U);
  EXPECT_EQ(served_fast(), 1U);
  std::this_thread::sleep_for(2 * proxy::UpstreamPool::rest_min);
  ASSERT_TRUE(reader.send(request("GET", path, "await=2 status=204")));
  (void)fast_.upstream().wait_for("seen", 3);
  EXPECT_EQ(fast_.guarded().put(path, token + 1).status, 204U);
  const auto answer = reader.receive();
  EXPECT_EQ(answer.status, 412U);
  EXPECT_EQ(answer.field("Fencing-Highest"), std::to_string(token + 1));
  EXPECT_EQ(served_fast(), 1U);
}

}  // namespace
}  // namespace fenceguard::test
