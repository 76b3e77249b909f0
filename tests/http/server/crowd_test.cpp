#include <gtest/gtest.h>

#include "tests/http/crowd.hpp"

namespace fenceguard::http {
namespace {

// Shows that clients which take their time cost others nothing. How: a thousand of one kind at a time, fed a
// byte now and then, while another client asks; nine in ten of its answers must come within a second.
class CrowdTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    raise_file_limit(2 * static_cast<std::size_t>(crowd_size));
    streams.script = [this](Stream& stream) -> Task<void> {
      std::string body;
      if (co_await read_all(stream, body) != Piece::end) co_return;
      (void)co_await stream.respond(answer(stream.request().target));
    };
    address = listen("127.0.0.1:0");
  }

  std::string listen(const std::string& where) {
    const auto limits = crowd_limits();
    return GetParam() ? server.listen(where, streams, limits) : server.listen(where, handler, limits);
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

  void expect_others_answered(const std::string& begin, std::string_view more) {
    Crowd crowd{address, begin};
    ASSERT_TRUE(eventually([&] { return server.connections() >= crowd_size; }));
    crowd.expect_others_answered(more, [this] {
      RawClient other{address};
      other.send("PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab");
      EXPECT_EQ(other.receive().body, "/x");
    });
    EXPECT_GE(server.connections(), crowd_size);
  }

  // More than a Unix socket holds.
  const std::string large = std::string(500'000, 'x');
  test::TempDir folder;
  AnsweringHandler handler{*this};
  ScriptedStreams streams;
  Server server{1};
  std::string address;
};

TEST_P(CrowdTest, OfSlowHeadersDoesNotBlockOtherClients) {
  expect_others_answered("GET /slow HTTP/1.1\r\nHost: h\r\nA: ", "a");
}

TEST_P(CrowdTest, OfSlowBodiesDoesNotBlockOtherClients) {
  expect_others_answered("PUT /slow HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n", "b");
}

TEST_P(CrowdTest, OfSlowChunksDoesNotBlockOtherClients) {
  expect_others_answered("PUT /slow HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nb\r\n");
}

TEST_P(CrowdTest, OfStalledReadersDoesNotBlockOtherClients) {
  // The kernel holds megabytes of what was sent over TCP, but little here.
  address = listen("unix:" + folder.file("s"));
  expect_others_answered("GET /large HTTP/1.1\r\nHost: h\r\n\r\n", "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, CrowdTest, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "Streams" : "WholeRequests"; });

}  // namespace
}  // namespace fenceguard::http
