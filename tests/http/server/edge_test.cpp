#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/http/edge_cases.hpp"
#include "tests/http/support.hpp"

namespace fenceguard::http {
namespace {

// Keeps note of every whole request.
class Seen {
 public:
  void add(const Request& request, const std::string& body) {
    const std::lock_guard lock{mutex_};
    seen_.push_back(fmt::format("{} {} {}", request.method, request.target, body));
  }
  std::vector<std::string> take() {
    const std::lock_guard lock{mutex_};
    return std::exchange(seen_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> seen_;
};

class SeeingHandler : public EchoHandler {
 public:
  explicit SeeingHandler(Seen& seen) : seen_{seen} {}
  void handle(Request request, std::shared_ptr<Caller>, Reply reply) override {
    seen_.add(request, request.body);
    reply(text_response("seen"));
  }

 private:
  Seen& seen_;
};

class SeeingStreams : public EchoStreams {
 public:
  explicit SeeingStreams(Seen& seen) : seen_{seen} {}
  Task<void> serve(Stream& stream) override {
    std::string body;
    if (co_await read_all(stream, body) != Piece::end) co_return;
    seen_.add(stream.request(), body);
    (void)co_await stream.respond(text_response("seen"));
  }

 private:
  Seen& seen_;
};

struct EdgeServer {
  Seen seen;
  SeeingHandler handler{seen};
  SeeingStreams streams{seen};
  Server server{1};
  std::string buffered = server.listen("127.0.0.1:0", handler, {});
  std::string streamed = server.listen("127.0.0.1:0", streams, {});
};

class EdgeTest : public ::testing::TestWithParam<EdgeClass> {
 protected:
  EdgeServer edge;
  TakeSeen take_seen = [this] { return edge.seen.take(); };
};

TEST_P(EdgeTest, WholeRequestsAreNotFooled) {
  for (const auto& edge_case : GetParam().cases) expect_edge(edge_case, edge.buffered, take_seen);
}

TEST_P(EdgeTest, StreamsAreNotFooled) {
  for (const auto& edge_case : GetParam().cases) expect_edge(edge_case, edge.streamed, take_seen);
}

// Shows that it makes no difference how the bytes come. How: one packet for each byte.
TEST_P(EdgeTest, NorByAByteAtATime) {
  for (const auto& edge_case : GetParam().cases) {
    SCOPED_TRACE("sent: " + edge_case.bytes);
    for (const auto& address : {edge.buffered, edge.streamed}) {
      RawClient client{address};
      for (const char byte : edge_case.bytes) {
        if (!client.is_quiet() || !client.send({&byte, 1})) break;
        std::this_thread::yield();
      }
      client.shutdown_send();
      const auto answer = client.receive_to_end();
      const auto seen = take_seen();
      EXPECT_EQ(seen,
                edge_case.seen ? std::vector<std::string>{*edge_case.seen} : std::vector<std::string>{});
      EXPECT_EQ(answer.find("HTTP/1.1 200") != std::string::npos, edge_case.seen.has_value());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Corpora, EdgeTest, ::testing::ValuesIn(edge_classes()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace fenceguard::http
