#include "server/net/tls/tls.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "guard/error.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/http/tls/tls_support.hpp"

namespace fenceguard::http {
namespace {

const std::string get = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";

class TlsTest : public ::testing::Test {
 protected:
  std::string serve(const TlsServerFiles& files, const Limits& limits = {}) {
    return server.listen("127.0.0.1:0", handler, limits, TlsContext::server(files, "http/1.1"));
  }

  const Certificates& certificates = Certificates::get();
  EchoHandler buffered;
  ScriptedStreams handler;
  Server server{2};
};

TEST_F(TlsTest, ServesBothKindsOfHandler) {
  const auto tls = TlsContext::server(certificates.server());
  for (const auto& address :
       {server.listen("127.0.0.1:0", buffered, {}, tls), server.listen("127.0.0.1:0", handler, {}, tls)}) {
    TlsClient client{address};
    ASSERT_TRUE(client.is_established());
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(client.send(fmt::format("PUT /{} HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab", i)));
      EXPECT_NE(client.receive_until(fmt::format("PUT /{} ab", i)).find("200 OK"), std::string::npos);
    }
  }
}

TEST_F(TlsTest, LargeBodiesPassBothWaysInEveryFraming) {
  const auto tls = TlsContext::server(certificates.server());
  const std::string body(4'000'000, 'b');
  for (const auto& address :
       {server.listen("127.0.0.1:0", buffered, {}, tls), server.listen("127.0.0.1:0", handler, {}, tls)}) {
    TlsClient client{address};
    const std::string head = "PUT / HTTP/1.1\r\nHost: h\r\n";
    ASSERT_TRUE(client.send(head + fmt::format("Content-Length: {}\r\n\r\n", body.size()) + body));
    EXPECT_GT(client.receive_until(body).size(), body.size());
    ASSERT_TRUE(client.send(head + "Transfer-Encoding: chunked\r\n\r\n" +
                            fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", body.size(), body)));
    EXPECT_GT(client.receive_until(body).size(), body.size());
  }
}

TEST_F(TlsTest, StreamKnowsThatItIsUnderTls) {
  handler.script = [](Stream& stream) -> Task<void> {
    (void)co_await stream.respond(text_response(stream.is_tls() ? "TLS" : "clear"));
  };
  TlsClient client{serve(certificates.server())};
  ASSERT_TRUE(client.send(get));
  EXPECT_NE(client.receive_until("TLS"), "");
}

TEST_F(TlsTest, EndIsSaidWithAFarewellButNotAfterHalfAnAnswer) {
  handler.script = [](Stream& stream) -> Task<void> {
    const bool is_whole = stream.request().target == "/whole";
    EXPECT_TRUE(co_await stream.begin(text_response({}), std::nullopt));
    EXPECT_TRUE(co_await stream.write("some"));
    if (is_whole) {
      EXPECT_TRUE(co_await stream.finish());
    }
  };
  const auto address = serve(certificates.server());
  TlsClient whole{address};
  ASSERT_TRUE(whole.send("GET /whole HTTP/1.0\r\n\r\n"));
  EXPECT_NE(whole.receive_to_end().find("\r\n\r\nsome"), std::string::npos);
  EXPECT_TRUE(whole.has_farewell());
  TlsClient half{address};
  ASSERT_TRUE(half.send("GET /half HTTP/1.0\r\n\r\n"));
  (void)half.receive_to_end();
  EXPECT_FALSE(half.has_farewell());
}

TEST_F(TlsTest, RefusalReachesAClientThatIsStillSending) {
  Limits limits;
  limits.body_bytes_max = 1000;
  TlsClient client{serve(certificates.server(), limits)};
  ASSERT_TRUE(
      client.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + std::string(100'000, 'x')));
  EXPECT_NE(client.receive_to_end().find("413"), std::string::npos);
  EXPECT_TRUE(client.has_farewell());
}

TEST_F(TlsTest, BodyThatEndsWithoutAFarewellIsNoBody) {
  TlsClient client{serve(certificates.server())};
  ASSERT_TRUE(client.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello"));
  client.shutdown_send();
  EXPECT_EQ(client.receive_to_end().find("HTTP/1.1 200"), std::string::npos);
}

TEST_F(TlsTest, ClientsMustShowACertificateWhereOneIsAskedFor) {
  const auto address = serve(certificates.asking_server());
  const auto answer = [&](const std::string& name) {
    TlsClient client{
        address, [&](SSL_CTX&, SSL& ssl) {
          if (name.empty()) return;
          SSL_use_certificate_file(&ssl, certificates.file(name + ".pem").c_str(), SSL_FILETYPE_PEM);
          SSL_use_PrivateKey_file(&ssl, certificates.file(name + ".key").c_str(), SSL_FILETYPE_PEM);
        }};
    client.send("GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    return client.receive_to_end();
  };
  EXPECT_NE(answer("client").find("GET /x"), std::string::npos);
  EXPECT_EQ(answer("intruder"), "");
  EXPECT_EQ(answer(""), "");
}

TEST_F(TlsTest, NothingIsSpokenInTheClear) {
  RawClient client{serve(certificates.server())};
  ASSERT_TRUE(client.send(get));
  EXPECT_EQ(client.receive_to_end().find("HTTP"), std::string::npos);
}

TEST_F(TlsTest, HandshakeHasADeadlineInTotal) {
  Limits limits;
  limits.idle_max = limits.body_max = limits.write_max = 2 * patience;
  limits.header_max = 150ms;
  const auto address = serve(certificates.server(), limits);
  RawClient silent{address};
  EXPECT_TRUE(silent.is_closed_by_server());
  RawClient trickling{address};
  ASSERT_TRUE(trickling.send("\x16\x03\x01\x02"));
  const auto limit = std::chrono::steady_clock::now() + patience;
  while (trickling.is_quiet() && std::chrono::steady_clock::now() < limit) {
    trickling.send({"\0", 1});
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_LT(std::chrono::steady_clock::now(), limit);
}

// Shows that handshakes do not wait for each other. How: some never go on, one loop serves all, and many
// shake hands at once.
TEST_F(TlsTest, ManyHandshakesAtOnceBesideSomeThatStopInTheMiddle) {
  const auto address = serve(certificates.server());
  std::vector<RawClient> stopped;
  for (int i = 0; i < 50; ++i) {
    stopped.emplace_back(address);
    ASSERT_TRUE(stopped.back().send({"\x16\x03\x01\x02\x00\x01", 6}));
  }
  std::atomic<int> served{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < test::scaled(16); ++k) {
        TlsClient client{address};
        if (!client.send(get)) continue;
        if (!client.receive_until("GET /x ").empty()) ++served;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(served, 8 * test::scaled(16));
}

TEST_F(TlsTest, RenegotiationIsOff) {
  TlsClient client{serve(certificates.server()),
                   [](SSL_CTX&, SSL& ssl) { SSL_set_max_proto_version(&ssl, TLS1_2_VERSION); }};
  ASSERT_TRUE(client.is_established());
  ASSERT_TRUE(client.send(get));
  EXPECT_NE(client.receive_until("GET /x "), "");
  SSL_renegotiate(&client.ssl());
  EXPECT_NE(SSL_do_handshake(&client.ssl()), 1);
}

TEST_F(TlsTest, SessionsAreTakenUpAgainAndCarryNoEarlyData) {
  const auto address = serve(certificates.server());
  SSL_SESSION* session = nullptr;
  {
    TlsClient client{address};
    ASSERT_TRUE(client.send(get));
    EXPECT_NE(client.receive_until("GET /x "), "");
    session = SSL_get1_session(&client.ssl());
    SSL_shutdown(&client.ssl());
  }
  EXPECT_EQ(SSL_SESSION_get_max_early_data(session), 0U);
  TlsClient again{address, [&](SSL_CTX&, SSL& ssl) { SSL_set_session(&ssl, session); }};
  EXPECT_EQ(SSL_session_reused(&again.ssl()), 1);
  ASSERT_TRUE(again.send(get));
  EXPECT_NE(again.receive_until("GET /x "), "");
  SSL_SESSION_free(session);
}

TEST_F(TlsTest, OnlyHttp11IsChosen) {
  const auto address = serve(certificates.server());
  const auto offer = [](std::string_view protocols) {
    return [protocols](SSL_CTX&, SSL& ssl) {
      SSL_set_alpn_protos(&ssl, reinterpret_cast<const unsigned char*>(protocols.data()),
                          static_cast<unsigned>(protocols.size()));
    };
  };
  TlsClient both{address, offer("\x02h2\x08http/1.1")};
  ASSERT_TRUE(both.is_established());
  const unsigned char* chosen = nullptr;
  unsigned bytes = 0;
  SSL_get0_alpn_selected(&both.ssl(), &chosen, &bytes);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(chosen), bytes), "http/1.1");
  TlsClient other{address, offer("\x02h2")};
  EXPECT_FALSE(other.is_established());
}

TEST_F(TlsTest, DrainEndsIdleConnectionsAndACutTheRest) {
  const auto address = serve(certificates.server());
  TlsClient idle{address};
  ASSERT_TRUE(idle.send(get));
  EXPECT_NE(idle.receive_until("GET /x "), "");
  RawClient shaking{address};
  ASSERT_TRUE(eventually([&] { return server.connections() == 2; }));
  EXPECT_FALSE(server.drain(5s));
  EXPECT_EQ(idle.receive_to_end(), "");
  EXPECT_TRUE(idle.has_farewell());
  EXPECT_TRUE(shaking.is_closed_by_server());
}

TEST_F(TlsTest, FilesThatCannotBeUsedAreNamed) {
  const auto message = [](const auto& make) -> std::string {
    try {
      (void)make();
      return "made";
    } catch (const InvalidInput& error) {
      return error.what();
    }
  };
  const auto names = [&](const TlsServerFiles& files, const std::string& name) {
    const auto text = message([&] { return TlsContext::server(files); });
    return text.find(name) != std::string::npos ? "named" : text;
  };
  auto files = certificates.server();
  files.certificate_file = "/nowhere/a.pem";
  EXPECT_EQ(names(files, "/nowhere/a.pem"), "named");
  files = certificates.server();
  files.key_file = certificates.file("client.key");
  EXPECT_EQ(names(files, "client.key"), "named");
  files.key_file = certificates.file("names");
  EXPECT_EQ(names(files, "'" + certificates.file("names") + "'"), "named");
  files = certificates.server();
  files.client_ca_file = "/nowhere/ca.pem";
  EXPECT_EQ(names(files, "/nowhere/ca.pem"), "named");
  EXPECT_NE(message([] {
              return TlsContext::client({"/nowhere/ca.pem", {}, {}}, "h");
            }).find("/nowhere/ca.pem"),
            std::string::npos);
  EXPECT_NE(message([] { return TlsContext::client({}, ""); }), "made");
}

}  // namespace
}  // namespace fenceguard::http
