// A session's fast path: over TLS, whose records the test cuts where it likes; beside clients that end, do
// not read or say nothing; and what becomes of a request that was begun.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "server/net/loop.hpp"
#include "server/net/poller.hpp"
#include "tests/http/tls/tls_support.hpp"

namespace fenceguard::http {
namespace {

// What became of the requests that were begun.
struct Counts {
  std::atomic<int> begun = 0;
  std::atomic<int> released = 0;
  std::atomic<int> served_slowly = 0;
};

// Answers with a body, or gives the request back.
class GatedExchange final : public FastExchange, public net::Poller::Deferred {
 public:
  GatedExchange(Counts& counts, std::string body, bool falls_back, FastClient& client, bool is_given_back)
      : counts_{counts},
        body_{std::move(body)},
        falls_back_{falls_back},
        client_{client},
        is_given_back_{is_given_back} {}

  [[nodiscard]] bool is_given_back() const noexcept override { return is_given_back_; }

  void release() noexcept override {
    counts_.released.fetch_add(1);
    delete this;
  }
  void run_deferred() noexcept override {
    if (falls_back_) return client_.fall_back();
    const auto framing = client_.frame_answer();
    begin_head(client_.out(), 200, framing.date);
    end_head(client_.out(), 200, body_.size(), framing);
    client_.send_answer(body_);
  }

 private:
  Counts& counts_;
  const std::string body_;
  const bool falls_back_;
  FastClient& client_;
  const bool is_given_back_;
};

// Begins every plain request, and ends it when the gate is open: the answer is padding and the path.
class GatedStreams : public EchoStreams {
 public:
  enum class Ending {
    answered,
    given_back_at_once,
    given_back_and_served,
    given_back_and_thrown,
    given_back_and_left
  };

  explicit GatedStreams(Ending ending = Ending::answered) : ending_{ending} {}

  [[nodiscard]] bool has_fast_path() const noexcept override { return true; }
  [[nodiscard]] FastExchangePtr begin(const PlainRequest& request, FastClient& client) override {
    counts.begun.fetch_add(1);
    auto exchange = std::make_unique<GatedExchange>(counts, padding + std::string{request.path},
                                                    ending_ != Ending::answered, client,
                                                    ending_ == Ending::given_back_at_once);
    if (exchange->is_given_back()) return FastExchangePtr{exchange.release()};
    const std::scoped_lock lock{mutex_};
    if (is_open_) {
      client.loop().poller().defer(*exchange);
    } else {
      waiting_ = exchange.get();
      loop_ = &client.loop();
    }
    return FastExchangePtr{exchange.release()};
  }
  [[nodiscard]] Task<void> serve(Stream& stream) override {
    counts.served_slowly.fetch_add(1);
    const bool is_served = ending_ != Ending::given_back_and_thrown && ending_ != Ending::given_back_and_left;
    if (is_served) (void)stream.take_begun();
    if (is_served) return EchoStreams::serve(stream);
    if (ending_ == Ending::given_back_and_thrown) throw std::bad_alloc{};
    return []() -> Task<void> { co_return; }();
  }

  void close_gate() {
    const std::scoped_lock lock{mutex_};
    is_open_ = false;
  }
  void open_gate() {
    const std::scoped_lock lock{mutex_};
    is_open_ = true;
    if (auto* const exchange = std::exchange(waiting_, nullptr))
      asio::post(loop_->context(), [exchange] { exchange->run_deferred(); });
  }

  Counts counts;
  std::string padding;

 private:
  const Ending ending_;
  std::mutex mutex_;
  bool is_open_ = true;
  GatedExchange* waiting_ = nullptr;
  net::Loop* loop_ = nullptr;
};

std::string request(const std::string& path) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: h\r\n\r\n", path);
}

class FastSessionTest : public ::testing::Test {
 protected:
  // What TlsClient would send, as it goes over the wire: one record.
  static std::string record(TlsClient& client, std::string_view bytes) {
    auto* const memory = BIO_new(BIO_s_mem());
    auto* const socket = SSL_get_wbio(&client.ssl());
    BIO_up_ref(socket);
    SSL_set0_wbio(&client.ssl(), memory);
    EXPECT_TRUE(client.send(bytes));
    char* data = nullptr;
    const auto size = BIO_get_mem_data(memory, &data);
    std::string result(data, static_cast<std::size_t>(size));
    SSL_set0_wbio(&client.ssl(), socket);
    return result;
  }
  static void send_raw(TlsClient& client, std::string_view bytes) {
    ASSERT_EQ(::send(SSL_get_fd(&client.ssl()), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Lets the server see what was sent so far by itself. Nothing fails where it does not; less is tried.
  static void let_it_read() { std::this_thread::sleep_for(2ms); }

  [[nodiscard]] std::string listen() {
    return server.listen("127.0.0.1:0", streams, {.idle_max = 2 * patience},
                         TlsContext::server(Certificates::get().server()));
  }

  GatedStreams streams;
  Server server{1};
};

TEST_F(FastSessionTest, ARequestBehindARecordThatWasCutIsServedWithoutAnotherByte) {
  TlsClient client{listen()};
  for (std::size_t at = 1, size = 2; at < size; ++at) {
    const auto first = record(client, request("/first"));
    const auto second = record(client, request("/next"));
    size = first.size();
    send_raw(client, first.substr(0, at));
    let_it_read();
    send_raw(client, first.substr(at) + second);
    ASSERT_NE(client.receive_until("/first"), "");
    ASSERT_NE(client.receive_until("/next"), "");
  }
  EXPECT_EQ(streams.counts.served_slowly, 0);
}

TEST_F(FastSessionTest, ARequestThatComesWhileTwoAreAtWorkIsServedWithoutAnotherByte) {
  TlsClient client{listen()};
  ASSERT_TRUE(client.send(request("/warm")));
  ASSERT_NE(client.receive_until("/warm"), "");
  const int begun = streams.counts.begun;
  streams.close_gate();
  auto records = record(client, request("/one"));
  records += record(client, request("/two"));
  send_raw(client, records);
  ASSERT_TRUE(eventually([&] { return streams.counts.begun == begun + 1; }));
  ASSERT_TRUE(client.send(request("/three")));
  let_it_read();
  streams.open_gate();
  for (const char* path : {"/one", "/two", "/three"}) ASSERT_NE(client.receive_until(path), "");
  EXPECT_EQ(streams.counts.served_slowly, 0);
}

TEST_F(FastSessionTest, ARequestInTwoRecordsThatCameTogetherIsPlain) {
  TlsClient client{listen()};
  ASSERT_TRUE(client.send(request("/warm")));
  ASSERT_NE(client.receive_until("/warm"), "");
  auto records = record(client, "PUT /body HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n");
  records += record(client, "four");
  send_raw(client, records);
  ASSERT_NE(client.receive_until("/body"), "");
  EXPECT_EQ(streams.counts.served_slowly, 0);
}

TEST_F(FastSessionTest, WhatWasBegunIsReleasedBeforeTheClientHearsThatItFailed) {
  using Ending = GatedStreams::Ending;
  for (const auto ending : {Ending::given_back_and_thrown, Ending::given_back_and_left}) {
    GatedStreams failing{ending};
    Server own{1};
    RawClient client{own.listen("127.0.0.1:0", failing, {})};
    ASSERT_TRUE(client.send(request("/begun")));
    EXPECT_EQ(client.receive().status, 500U);
    EXPECT_EQ(failing.counts.begun, 1);
    EXPECT_EQ(failing.counts.released, 1);
  }
}

// A coroutine has its head and its body as they came, and what came behind it stays for the next one.
TEST_F(FastSessionTest, RequestThatIsGivenBackIsServedWithWhatWasRead) {
  using Ending = GatedStreams::Ending;
  for (const auto ending : {Ending::given_back_at_once, Ending::given_back_and_served}) {
    GatedStreams given_back{ending};
    Server own{1};
    RawClient client{own.listen("127.0.0.1:0", given_back, {})};
    ASSERT_TRUE(client.send(
        "PUT /a?b=c HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nfour" + request("/next") +
        "PUT /odd HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nodd\r\n0\r\n\r\n"));
    const auto first = client.receive();
    EXPECT_NE(first.body.find("/a?b=c"), std::string::npos) << first.body;
    EXPECT_NE(first.body.find("four"), std::string::npos) << first.body;
    const auto next = client.receive();
    EXPECT_NE(next.body.find("/next"), std::string::npos) << next.body;
    const auto odd = client.receive();
    EXPECT_NE(odd.body.find("odd"), std::string::npos) << odd.body;
    EXPECT_EQ(given_back.counts.served_slowly, 3);
    EXPECT_EQ(given_back.counts.released, given_back.counts.begun);
  }
}

// 15 MB of answers, which no buffer takes.
TEST_F(FastSessionTest, AClientThatDoesNotReadHasEveryAnswerInItsOrder) {
  constexpr int requests = 1000;
  streams.padding = std::string(15'000, '.');
  RawClient client{server.listen("127.0.0.1:0", streams, {})};
  std::string all;
  for (int i = 0; i < requests; ++i) all += request(fmt::format("/{}", i));
  ASSERT_TRUE(client.send(all));
  EXPECT_TRUE(eventually([&] { return streams.counts.begun > 10; }));
  for (int i = 0; i < requests; ++i) {
    const auto answer = client.receive();
    ASSERT_NE(answer.body.find(fmt::format("/{}", i)), std::string::npos) << i;
  }
  EXPECT_EQ(streams.counts.begun + streams.counts.served_slowly, requests);
}

TEST_F(FastSessionTest, RequestsInFrontOfAnEndAreAnswered) {
  RawClient client{server.listen("127.0.0.1:0", streams, {})};
  ASSERT_TRUE(client.send(request("/one") + request("/two")));
  client.shutdown_send();
  EXPECT_NE(client.receive().body.find("/one"), std::string::npos);
  EXPECT_NE(client.receive().body.find("/two"), std::string::npos);
  EXPECT_EQ(client.receive_to_end(), "");
}

TEST_F(FastSessionTest, AResetBehindTwoRequestsReleasesWhatWasBegun) {
  streams.close_gate();
  RawClient client{server.listen("127.0.0.1:0", streams, {})};
  ASSERT_TRUE(client.send(request("/one") + request("/two")));
  ASSERT_TRUE(eventually([&] { return streams.counts.begun == 1; }));
  client.reset();
  streams.open_gate();
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
  EXPECT_TRUE(eventually([&] { return streams.counts.released == streams.counts.begun; }));
}

TEST_F(FastSessionTest, AnIdleConnectionEndsAtItsLimit) {
  RawClient client{server.listen("127.0.0.1:0", streams, {.idle_max = 50ms})};
  ASSERT_TRUE(client.send(request("/one")));
  EXPECT_EQ(client.receive().status, 200U);
  EXPECT_EQ(client.receive_to_end(), "");
  EXPECT_EQ(streams.counts.served_slowly, 0);
}

TEST_F(FastSessionTest, ADrainWaitsForWhatWasBegunAndNotForMore) {
  streams.close_gate();
  RawClient client{server.listen("127.0.0.1:0", streams, {})};
  ASSERT_TRUE(client.send(request("/one")));
  ASSERT_TRUE(eventually([&] { return streams.counts.begun == 1; }));
  std::jthread drain{[&] { EXPECT_TRUE(server.drain(patience)); }};
  let_it_read();
  streams.open_gate();
  EXPECT_EQ(client.receive().body, "/one");
  EXPECT_EQ(client.receive_to_end(), "");
}

}  // namespace
}  // namespace fenceguard::http
