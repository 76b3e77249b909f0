#pragma once

// What the tests of TLS share: certificates, made by the openssl command, and a client that does with OpenSSL
// what the test says.

#include <openssl/ssl.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/net/tls/tls.hpp"
#include "tests/http/support.hpp"

namespace fenceguard::http {

// An authority, and certificates for a server and a client that it signed; a stranger's too, that signed
// nothing but a client. They are made once for all tests of a process.
class Certificates {
 public:
  static const Certificates& get();

  [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }
  // localhost and 127.0.0.1.
  [[nodiscard]] TlsServerFiles server() const { return {file("server.pem"), file("server.key"), {}}; }
  // A server that asks for a client's certificate.
  [[nodiscard]] TlsServerFiles asking_server() const {
    return {file("server.pem"), file("server.key"), file("ca.pem")};
  }
  [[nodiscard]] TlsClientFiles client() const { return {file("ca.pem"), {}, {}}; }
  [[nodiscard]] TlsClientFiles client_with(const std::string& name) const {
    return {file("ca.pem"), file(name + ".pem"), file(name + ".key")};
  }

 private:
  Certificates();
  test::TempDir folder_;
};

// A blocking connection under TLS.
class TlsClient {
 public:
  using Setting = std::function<void(SSL_CTX&, SSL&)>;

  // Connects and shakes hands; is_established() says with what success. setting is applied before.
  explicit TlsClient(const std::string& address, const Setting& setting = nullptr);
  ~TlsClient();
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  [[nodiscard]] bool is_established() const noexcept { return is_established_; }
  [[nodiscard]] SSL& ssl() noexcept { return *ssl_; }
  bool send(std::string_view bytes);
  // What comes until the server's end.
  [[nodiscard]] std::string receive_to_end();
  // Until what has come ends with end.
  [[nodiscard]] std::string receive_until(std::string_view end);
  // The server said farewell.
  [[nodiscard]] bool has_farewell() const noexcept { return has_farewell_; }
  // Ends our side without a farewell.
  void shutdown_send();

 private:
  bool receive_some();

  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  int socket_ = -1;
  bool is_established_ = false;
  bool has_farewell_ = false;
  std::string received_;
};

}  // namespace fenceguard::http
