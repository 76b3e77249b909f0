// Shows that clients of the proxy which take their time cost others nothing. How: a thousand of one kind at a
// time, fed a byte now and then, while another client writes and reads under a claim; nine of its answers in
// ten must come within a second.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/http/crowd.hpp"
#include "tests/proxy/guarded.hpp"
#include "tests/proxy/upstream/upstream.hpp"

namespace fenceguard::test {
namespace {

using http::Crowd;
using http::crowd_size;

// Of a body, more than is held back before it is passed on.
constexpr int held_bytes = 100'000;

class ProxyCrowdTest : public testing::Test {
 protected:
  ProxyCrowdTest() {
    guarded_.put("/slow", 1);
    guarded_.put("/other", 1);
  }
  ~ProxyCrowdTest() override { EXPECT_THAT(upstream_.anomalies(), testing::IsEmpty()); }

  static std::string head_of(const std::string& target, const std::string& framing) {
    return "PUT " + target + " HTTP/1.1\r\nHost: guard\r\nFencing-Token: 1\r\nFencing-Holder: h\r\n" +
           framing + "\r\n\r\n";
  }

  static GuardedOptions options() {
    GuardedOptions options;
    options.limits = http::crowd_limits();
    options.limits.body_bytes_max = http::Limits::no_bound;
    return options;
  }

  // Each of the crowd has begun a request that is not answered; has a write that was passed on.
  [[nodiscard]] bool are_served() { return guarded_.service().in_flight() >= crowd_size; }
  [[nodiscard]] bool are_passed_on() { return guarded_.service().lanes().in_flight >= crowd_size; }

  // What another client does: a write under a higher token, and a fenced read of it.
  void write_and_read(const std::string& target) {
    ++token_;
    const auto body = "body " + std::to_string(token_);
    EXPECT_EQ(guarded_.put(target, token_, "", body).status, 204U);
    EXPECT_EQ(guarded_.send("GET", target, claim(token_)).body, body);
  }

  // The crowd must have come as far as are_there before, and still be there in the end.
  void expect_others_answered(Crowd crowd, std::string_view more, const std::string& target,
                              const std::function<bool(Crowd&)>& are_there) {
    ASSERT_TRUE(http::eventually([&] { return are_there(crowd); }));
    crowd.expect_others_answered(more, [&] { write_and_read(target); });
    EXPECT_TRUE(are_there(crowd));
  }

  // Both ends of the clients' connections, and one of those to the upstream.
  const bool has_files_ = (http::raise_file_limit(3 * static_cast<std::size_t>(crowd_size)), true);
  TempDir folder_;
  Upstream upstream_;
  Guarded guarded_{upstream_.url(), options()};
  std::int64_t token_ = 1;
};

TEST_F(ProxyCrowdTest, OfSlowHeadersDoesNotBlockOtherClients) {
  expect_others_answered({guarded_.address(), "PUT /slow HTTP/1.1\r\nHost: guard\r\nA: "}, "a", "/slow",
                         [](Crowd& crowd) { return crowd.is_quiet(); });
}

TEST_F(ProxyCrowdTest, OfSlowSmallBodiesHindersNobodyNotEvenAtTheSameResource) {
  expect_others_answered({guarded_.address(), head_of("/slow", "Content-Length: 60000")}, "b", "/slow",
                         [&](Crowd&) { return are_served(); });
}

TEST_F(ProxyCrowdTest, OfSlowSmallChunksHindersNobodyNotEvenAtTheSameResource) {
  expect_others_answered({guarded_.address(), head_of("/slow", "Transfer-Encoding: chunked")}, "1\r\nb\r\n",
                         "/slow", [&](Crowd&) { return are_served(); });
}

TEST_F(ProxyCrowdTest, OfSlowLargeBodiesHindersNobodyElsewhere) {
  const auto begin = head_of("/slow", "Content-Length: 1000000") + std::string(held_bytes, 'b');
  expect_others_answered({guarded_.address(), begin}, "b", "/other", [&](Crowd&) { return are_passed_on(); });
}

TEST_F(ProxyCrowdTest, OfSlowLargeChunksHindersNobodyElsewhere) {
  const auto chunk = fmt::format("{:x}\r\n{}\r\n", held_bytes, std::string(held_bytes, 'b'));
  expect_others_answered({guarded_.address(), head_of("/slow", "Transfer-Encoding: chunked") + chunk},
                         "1\r\nb\r\n", "/other", [&](Crowd&) { return are_passed_on(); });
}

TEST_F(ProxyCrowdTest, CrowdOfReadersThatTakeNothingHindersNoOther) {
  // The kernel holds megabytes of what was sent over TCP, but little here.
  const auto address = guarded_.service().listen("unix:" + folder_.file("s"));
  const auto read = bytes_of("GET", "/slow", claim(1, {{"Upstream-Do", "status=200 body=500000"}}));
  expect_others_answered({address, read}, "", "/slow",
                         [&](Crowd& crowd) { return are_served() && crowd.is_answered(); });
}

}  // namespace
}  // namespace fenceguard::test
