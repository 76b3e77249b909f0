#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>

#include "tests/conformance/scale.hpp"
#include "tests/http/support.hpp"

namespace fenceguard::http {
namespace {

const int crowd = test::scaled(1000);

// Shows that clients which take their time cost others nothing. How: a thousand of one kind at a time, fed a
// byte now and then, while another client asks; each of its answers must come within a second.
class CrowdTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ASSERT_GE(limit.rlim_cur, 2'500U) << "this test needs 1,000 connections, both ends in one process";
    streams.script = [this](Stream& stream) -> Task<void> {
      std::string body;
      if (co_await read_all(stream, body) != Piece::end) co_return;
      (void)co_await stream.respond(answer(stream.request().target));
    };
    address =
        GetParam() ? server.listen("127.0.0.1:0", streams, {}) : server.listen("127.0.0.1:0", handler, {});
  }

  std::string listen(const std::string& where) {
    return GetParam() ? server.listen(where, streams, {}) : server.listen(where, handler, {});
  }

  Response answer(const std::string& target) const {
    return text_response(target == "/large" ? large : target);
  }

  class AnsweringHandler : public EchoHandler {
   public:
    explicit AnsweringHandler(const CrowdTest& test) : test_{test} {}
    void handle(Request request, std::shared_ptr<Caller>, Reply reply) override {
      reply(test_.answer(request.target));
    }

   private:
    const CrowdTest& test_;
  };

  // Has begin sent by the crowd, and then a byte now and then by each, while another asks.
  void expect_others_answered(const std::string& begin, std::string_view more) {
    std::vector<RawClient> clients;
    clients.reserve(static_cast<std::size_t>(crowd));
    for (int i = 0; i < crowd; ++i) {
      clients.emplace_back(address);
      ASSERT_TRUE(clients.back().send(begin));
    }
    ASSERT_TRUE(eventually([&] { return server.connections() >= crowd; }));
    std::atomic<bool> is_over{false};
    std::thread feeding{[&] {
      while (!is_over) {
        for (auto& client : clients) client.send(more);
        std::this_thread::sleep_for(10ms);
      }
    }};
    auto slowest = 0ns;
    for (int i = 0; i < test::scaled(400); ++i) {
      const auto asked = std::chrono::steady_clock::now();
      RawClient other{address};
      other.send("PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab");
      EXPECT_EQ(other.receive().body, "/x");
      slowest = std::max(slowest, std::chrono::steady_clock::now() - asked);
      std::this_thread::sleep_for(1ms);
    }
    is_over = true;
    feeding.join();
    EXPECT_LT(slowest, 1s);
    EXPECT_GE(server.connections(), crowd);
  }

  // More than a Unix socket holds.
  const std::string large = std::string(500'000, 'x');
  TemporaryFolder folder;
  AnsweringHandler handler{*this};
  ScriptedStreams streams;
  Server server{1};
  std::string address;
};

TEST_P(CrowdTest, OfSlowHeadersHindersNobody) {
  expect_others_answered("GET /slow HTTP/1.1\r\nHost: h\r\nA: ", "a");
}

TEST_P(CrowdTest, OfSlowBodiesHindersNobody) {
  expect_others_answered("PUT /slow HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n", "b");
}

TEST_P(CrowdTest, OfSlowChunksHindersNobody) {
  expect_others_answered("PUT /slow HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nb\r\n");
}

TEST_P(CrowdTest, OfReadersThatTakeNothingHindersNobody) {
  // The kernel holds megabytes of what was sent over TCP, but little here.
  address = listen("unix:" + folder.file("s"));
  expect_others_answered("GET /large HTTP/1.1\r\nHost: h\r\n\r\n", "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, CrowdTest, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "Streams" : "WholeRequests"; });

}  // namespace
}  // namespace fenceguard::http
