#include "tests/http/tls/tls_support.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "server/net/address.hpp"

namespace fenceguard::http {
namespace {

void openssl(const std::string& arguments) {
  const auto command = fmt::format("openssl {} 2>/dev/null >/dev/null", arguments);
  if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
}

}  // namespace

const Certificates& Certificates::get() {
  static const Certificates certificates;
  return certificates;
}

Certificates::Certificates() {
  const std::string key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
  for (const char* name : {"ca", "stranger"}) {
    openssl(fmt::format("req -x509 {} -days 2 -subj /CN={} -keyout {} -out {}", key, name,
                        file(fmt::format("{}.key", name)), file(fmt::format("{}.pem", name))));
  }
  std::ofstream{file("names")} << "subjectAltName=DNS:localhost,IP:127.0.0.1\n";
  for (const auto& [name, signer] :
       {std::pair{"server", "ca"}, std::pair{"client", "ca"}, std::pair{"intruder", "stranger"}}) {
    const auto request = file(fmt::format("{}.csr", name));
    openssl(fmt::format("req {} -subj /CN={} -keyout {} -out {}", key, name,
                        file(fmt::format("{}.key", name)), request));
    openssl(fmt::format("x509 -req -in {} -CA {} -CAkey {} -CAcreateserial -days 2 -extfile {} -out {}",
                        request, file(fmt::format("{}.pem", signer)), file(fmt::format("{}.key", signer)),
                        file("names"), file(fmt::format("{}.pem", name))));
  }
}

TlsClient::TlsClient(const std::string& address, const Setting& setting)
    : context_{SSL_CTX_new(TLS_client_method())} {
  // OpenSSL writes with write(2).
  std::signal(SIGPIPE, SIG_IGN);
  const auto endpoint = resolve(Address::parse(address)).front();
  socket_ = ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(socket_, endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0)
    throw std::runtime_error("no connection to " + address);
  const timeval limit{std::chrono::seconds{patience}.count(), 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ssl_ = SSL_new(context_);
  SSL_set_fd(ssl_, socket_);
  if (setting) setting(*context_, *ssl_);
  is_established_ = SSL_connect(ssl_) == 1;
}

TlsClient::~TlsClient() {
  SSL_free(ssl_);
  SSL_CTX_free(context_);
  ::close(socket_);
}

bool TlsClient::send(std::string_view bytes) {
  return SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())) == static_cast<int>(bytes.size());
}

bool TlsClient::receive_some() {
  char bytes[16384];
  const auto count = SSL_read(ssl_, bytes, sizeof bytes);
  if (count > 0) received_.append(bytes, static_cast<std::size_t>(count));
  if (count <= 0) has_farewell_ = SSL_get_error(ssl_, count) == SSL_ERROR_ZERO_RETURN;
  return count > 0;
}

std::string TlsClient::receive_to_end() {
  while (receive_some()) {
  }
  return std::exchange(received_, {});
}

std::string TlsClient::receive_until(std::string_view end) {
  while (received_.size() < end.size() || received_.substr(received_.size() - end.size()) != end) {
    if (!receive_some()) throw std::runtime_error("ended before: " + received_);
  }
  return std::exchange(received_, {});
}

void TlsClient::shutdown_send() {
  ::shutdown(socket_, SHUT_WR);
}

}  // namespace fenceguard::http
