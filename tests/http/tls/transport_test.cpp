#include "server/net/transport.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <csignal>

#include "server/net/address.hpp"
#include "tests/http/tls/tls_support.hpp"

namespace fenceguard::http {
namespace {

// The client's side of a transport, on a loop of the test's own.
class ChannelTest : public ::testing::Test {
 protected:
  ChannelTest() { std::signal(SIGPIPE, SIG_IGN); }

  Transport connect(const std::string& address, std::shared_ptr<const TlsContext> tls = nullptr) {
    const auto endpoint = resolve(Address::parse(address)).front();
    Socket socket{context};
    socket.connect(endpoint);
    return Transport{std::move(socket), std::move(tls)};
  }

  // Runs one coroutine to its end.
  void run(std::function<Task<void>()> task) {
    bool is_done = false;
    asio::co_spawn(context, task(), [&](std::exception_ptr error) { is_done = !error; });
    context.restart();
    context.run_for(patience);
    ASSERT_TRUE(is_done);
  }

  Transport::Error handshake(Transport& transport) {
    Transport::Error result;
    run([&]() -> Task<void> { result = co_await transport.handshake(); });
    return result;
  }

  std::string ask(Transport& transport, std::string_view request, std::string_view end) {
    std::string answer;
    run([&]() -> Task<void> {
      // A server that refuses our certificate may have gone already.
      if (co_await transport.write_all(request.substr(0, 4), request.substr(4))) co_return;
      char bytes[4096];
      while (answer.size() < end.size() || answer.substr(answer.size() - end.size()) != end) {
        const auto [error, count] = co_await transport.read_some(bytes, sizeof bytes);
        if (error) break;
        answer.append(bytes, count);
      }
    });
    return answer;
  }

  const Certificates& certificates = Certificates::get();
  asio::io_context context{1};
  ScriptedStreams handler;
  Server server{1};
};

const std::string get = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";

TEST_F(ChannelTest, CarriesBytesInTheClearAndUnderTls) {
  auto clear = connect(server.listen("127.0.0.1:0", handler, {}));
  EXPECT_FALSE(handshake(clear));
  EXPECT_NE(ask(clear, get, "GET /x "), "");
  const auto address = server.listen("127.0.0.1:0", handler, {}, TlsContext::server(certificates.server()));
  auto hidden = connect(address, TlsContext::client(certificates.client(), "localhost"));
  EXPECT_TRUE(hidden.is_tls());
  EXPECT_FALSE(handshake(hidden));
  EXPECT_NE(ask(hidden, get, "GET /x ").find("200 OK"), std::string::npos);
}

TEST_F(ChannelTest, TakesTheServersCertificateForItsNameAndItsAddressOnly) {
  const auto address = server.listen("127.0.0.1:0", handler, {}, TlsContext::server(certificates.server()));
  const auto refusal = [&](const TlsClientFiles& files, const std::string& host) {
    auto transport = connect(address, TlsContext::client(files, host));
    const auto error = handshake(transport);
    return error ? error.message() : std::string{};
  };
  EXPECT_EQ(refusal(certificates.client(), "localhost"), "");
  EXPECT_EQ(refusal(certificates.client(), "127.0.0.1"), "");
  for (const char* other : {"example.org", "localhost.example.org", "127.0.0.2", "::1", "server"})
    EXPECT_NE(refusal(certificates.client(), other).find("certificate verify failed"), std::string::npos)
        << other;
  EXPECT_NE(refusal({certificates.file("stranger.pem"), {}, {}}, "localhost"), "");
  EXPECT_NE(refusal({}, "localhost"), "");
}

TEST_F(ChannelTest, ShowsItsOwnCertificateWhereOneIsAskedFor) {
  const auto address =
      server.listen("127.0.0.1:0", handler, {}, TlsContext::server(certificates.asking_server()));
  const auto answer = [&](const TlsClientFiles& files) {
    auto transport = connect(address, TlsContext::client(files, "localhost"));
    if (handshake(transport)) return std::string{};
    return ask(transport, get, "GET /x ");
  };
  EXPECT_NE(answer(certificates.client_with("client")), "");
  EXPECT_EQ(answer(certificates.client()), "");
  EXPECT_EQ(answer(certificates.client_with("intruder")), "");
}

// What a client sends first, seen by a server that says nothing.
TEST_F(ChannelTest, NamesTheServerThatItAsksForUnlessItIsANumber) {
  Acceptor acceptor{context, resolve(Address::parse("127.0.0.1:0")).front()};
  const auto address = to_string(Endpoint{acceptor.local_endpoint()});
  for (const char* host : {"storage.example.org", "127.0.0.1"}) {
    auto transport = connect(address, TlsContext::client(certificates.client(), host));
    std::string hello(4096, '\0');
    run([&]() -> Task<void> {
      asio::co_spawn(
          context, [&]() -> Task<void> { (void)co_await transport.handshake(); }, asio::detached);
      Transport silent{co_await acceptor.async_accept(asio::deferred)};
      const auto [error, bytes] = co_await silent.read_some(hello.data(), hello.size());
      EXPECT_FALSE(error);
      hello.resize(bytes);
      silent.close();
    });
    EXPECT_EQ(hello.find(host) != std::string::npos, std::string_view{host} != "127.0.0.1");
  }
}

TEST_F(ChannelTest, IsQuietUntilTheOtherSideSpeaksOrEnds) {
  const auto tls = TlsContext::server(certificates.server());
  for (const bool is_tls : {false, true}) {
    const auto address = server.listen("127.0.0.1:0", handler, {}, is_tls ? tls : nullptr);
    auto transport =
        connect(address, is_tls ? TlsContext::client(certificates.client(), "localhost") : nullptr);
    ASSERT_FALSE(handshake(transport));
    EXPECT_NE(ask(transport, get, "GET /x "), "");
    EXPECT_TRUE(transport.is_quiet()) << is_tls;
    std::string_view head = get;
    std::string_view none;
    ASSERT_FALSE(transport.write_now(head, none));
    EXPECT_TRUE(eventually([&] { return !transport.is_quiet(); }));
    EXPECT_FALSE(transport.is_ended());
    auto ending = connect(address, is_tls ? TlsContext::client(certificates.client(), "localhost") : nullptr);
    ASSERT_FALSE(handshake(ending));
    EXPECT_NE(ask(ending, "GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "GET /x "), "");
    EXPECT_TRUE(eventually([&] { return ending.is_ended(); })) << is_tls;
    EXPECT_FALSE(ending.is_quiet());
  }
}

TEST_F(ChannelTest, ResetIsSeenAsOneAndCancelEndsAWait) {
  Acceptor acceptor{context, resolve(Address::parse("127.0.0.1:0")).front()};
  const auto address = to_string(Endpoint{acceptor.local_endpoint()});
  auto transport = connect(address);
  run([&]() -> Task<void> {
    Transport other{co_await acceptor.async_accept(asio::deferred)};
    char byte = 0;
    EXPECT_EQ(std::get<0>(other.read_now(&byte, 1)), asio::error::would_block);
    asio::post(context, [&] { other.cancel(); });
    EXPECT_EQ(std::get<0>(co_await other.read_some(&byte, 1)), asio::error::operation_aborted);
    std::string_view head = "sent, and dropped by the reset";
    std::string_view none;
    EXPECT_FALSE(other.write_now(head, none));
    transport.reset();
    EXPECT_FALSE(transport.is_open());
    EXPECT_EQ(std::get<0>(co_await other.read_some(&byte, 1)), asio::error::connection_reset);
  });
}

}  // namespace
}  // namespace fenceguard::http
