// Interim answers (1xx) that an upstream sends while it still takes a large body: they are no answer, and the
// rest of the body is sent.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>

#include "server/proxy/upstream/upstream_pool.hpp"
#include "tests/proxy/guarded.hpp"

namespace fenceguard::test {
namespace {

constexpr std::size_t body_bytes = 4 * 1024 * 1024;
constexpr const char* until_gone = "";
constexpr std::size_t talkative_bytes = 1'000;
constexpr std::string_view head_end = "\r\n\r\n";

// Serves the requests of one connection: takes a head, says words while the body waits to be taken, takes the
// body, answers. Its kernel takes no more than untaken_bytes ahead. A body of few bytes it takes without a
// word.
class Talker {
 public:
  explicit Talker(std::vector<std::string> words, int untaken_bytes = 16 * 1024) : words_{std::move(words)} {
    ::setsockopt(listener_, SOL_SOCKET, SO_RCVBUF, &untaken_bytes, sizeof untaken_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    ::listen(listener_, 1);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread{[this] { serve(); }};
  }
  ~Talker() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  Talker(const Talker&) = delete;
  Talker& operator=(const Talker&) = delete;

  [[nodiscard]] const std::string& url() const noexcept { return url_; }

 private:
  static std::size_t bytes_behind(const std::string& head) {
    constexpr std::string_view name = "Content-Length: ";
    return std::stoul(head.substr(head.find(name) + name.size()));
  }

  void serve() {
    const int connection = ::accept(listener_, nullptr, nullptr);
    std::string seen;
    std::array<char, 1024> piece;
    const auto take = [&] {
      const auto bytes = ::recv(connection, piece.data(), piece.size(), 0);
      if (bytes > 0) seen.append(piece.data(), static_cast<std::size_t>(bytes));
      return bytes > 0;
    };
    const auto say = [&](const std::string& bytes) {
      (void)!::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    };
    const auto serve_one = [&] {
      while (seen.find(head_end) == std::string::npos) {
        if (!take()) return false;
      }
      const auto body = bytes_behind(seen);
      for (const auto& word : words_) {
        if (body < talkative_bytes) break;
        std::this_thread::sleep_for(30ms);
        say(word);
        pollfd ended{connection, 0, 0};
        if (word == until_gone) (void)::poll(&ended, 1, -1);
      }
      const auto end = seen.find(head_end) + head_end.size() + body;
      while (seen.size() < end) {
        if (!take()) return false;
      }
      seen.erase(0, end);
      say("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
      return true;
    };
    while (serve_one()) continue;
    ::close(connection);
  }

  const std::vector<std::string> words_;
  int listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
  std::string url_;
  std::thread thread_;
};

class InterimTest : public testing::Test {
 protected:
  static http::Response put_past(std::vector<std::string> words) {
    const Talker upstream{std::move(words)};
    return Guarded{upstream.url()}.put("/a", 1, {}, std::string(body_bytes, 'x'));
  }
};

TEST_F(InterimTest, AnInterimAnswerWithinALargeBodyIsNoAnswer) {
  for (const auto* status : {"100 Continue", "102 Processing", "103 Early Hints"}) {
    const auto response = put_past({"HTTP/1.1 " + std::string{status} + "\r\nLink: </a>\r\n\r\n"});
    EXPECT_EQ(response.status, 201U) << status;
    EXPECT_EQ(verdict(response), "admitted");
  }
}

TEST_F(InterimTest, InterimAnswersMayComeInPiecesAndOneAfterAnother) {
  const std::string hints = "HTTP/1.1 103 Early Hints\r\n\r\n";
  EXPECT_EQ(put_past({"HTTP/1.1 1", "02 Processing\r\n\r", "\n" + hints + hints, hints}).status, 201U);
}

TEST_F(InterimTest, ASuccessBehindAnInterimAnswerIsAsEarlyAsOneWithout) {
  const auto response =
      put_past({"HTTP/1.1 103 Hints\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"});
  EXPECT_EQ(response.status, 502U);
  EXPECT_EQ(verdict(response), "unknown");
}

TEST_F(InterimTest, InterimAnswersWithoutEndAreNoAnswerEither) {
  std::string many;
  for (int i = 0; i < 40; ++i) many += "HTTP/1.1 103 Early Hints\r\n\r\n";
  EXPECT_EQ(put_past({many}).status, 502U);
}

// The whole request was handed to the kernel at once, and lies there.
TEST_F(InterimTest, ASuccessBeforeTheBodyWasTakenIsUnknownOnTheFastPathToo) {
  const Talker upstream{{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", until_gone}, 2 * 1024};
  GuardedOptions options;
  options.has_fast_path = true;
  Guarded guarded{upstream.url(), options};
  for (const auto served : {0U, 1U}) {
    EXPECT_EQ(guarded.put("/a", 1).status, 201U);
    EXPECT_EQ(guarded.service().served_fast(), served);
    std::this_thread::sleep_for(2 * proxy::UpstreamPool::rest_min);
  }
  const auto response = guarded.put("/a", 1, {}, std::string(12'000, 'x'));
  EXPECT_EQ(response.status, 502U);
  EXPECT_EQ(verdict(response), "unknown");
  EXPECT_EQ(guarded.service().served_fast(), 1U);
}

}  // namespace
}  // namespace fenceguard::test
