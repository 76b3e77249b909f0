#include "server/http/client.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <string_view>
#include <utility>

#include "guard/error.hpp"
#include "server/http/net.hpp"
#include "server/net/address.hpp"
#include "server/net/net.hpp"

namespace fenceguard::http {
namespace {

namespace beast = boost::beast;

using ErrorCode = boost::system::error_code;
using Parser = beast::http::response_parser<beast::http::string_body>;

Address parse_server(const std::string& server) {
  constexpr std::string_view scheme = "http://";
  if (server.rfind("unix:", 0) == 0) return Address::parse(server);
  if (server.rfind(scheme, 0) != 0) {
    throw InvalidInput(fmt::format("a server reads http://HOST:PORT or unix:/path, not '{}'", server));
  }
  auto authority = server.substr(scheme.size());
  if (!authority.empty() && authority.back() == '/') authority.pop_back();
  return Address::parse(authority);
}

bool announces_body(const Request& request) {
  return !request.body.empty() || request.method == "PUT" || request.method == "POST" ||
         request.method == "PATCH";
}

Response to_response(Parser& parser) {
  auto& message = parser.get();
  Response response;
  response.status = message.result_int();
  for (const auto& field : message) {
    response.fields.add(std::string{field.name_string()}, std::string{field.value()});
  }
  response.body = std::move(message.body());
  response.close = !message.keep_alive();
  return response;
}

}  // namespace

class Client::Impl {
 public:
  Impl(const std::string& server, std::chrono::milliseconds timeout)
      : address_{parse_server(server)}, timeout_{timeout} {}

  void add_default(std::string name, std::string value) { defaults_.add(std::move(name), std::move(value)); }
  void limit_body(std::size_t bytes_max) { body_bytes_max_ = bytes_max; }
  Response send(const Request& request, std::chrono::milliseconds timeout);
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }

 private:
  // Runs what start begins, which calls back with an error, until then or the deadline. Blocking sockets have
  // no timeouts, so every call is asynchronous inside.
  template <class Start>
  ErrorCode wait(SteadyTime deadline, Start start);

  [[nodiscard]] bool is_usable();
  void connect(SteadyTime deadline);
  ErrorCode write(const std::string& bytes, SteadyTime deadline, std::size_t& sent);
  // Reads past interim answers. nothing but an error if the answer did not come whole.
  ErrorCode read(bool is_head, SteadyTime deadline, Response& response);
  [[nodiscard]] std::string compose(const Request& request) const;
  void close() noexcept;

  const Address address_;
  const std::chrono::milliseconds timeout_;
  Fields defaults_;
  boost::optional<std::uint64_t> body_bytes_max_;
  asio::io_context context_{1};
  Socket socket_{context_};
  beast::flat_buffer buffer_;
};

template <class Start>
ErrorCode Client::Impl::wait(SteadyTime deadline, Start start) {
  ErrorCode result;
  bool is_done = false;
  start([&](ErrorCode error, auto&&...) {
    result = error;
    is_done = true;
  });
  context_.restart();
  context_.run_until(deadline);
  if (is_done) return result;
  close();
  context_.restart();
  context_.run();
  return asio::error::timed_out;
}

void Client::Impl::close() noexcept {
  ErrorCode ignored;
  socket_.close(ignored);
  buffer_.clear();
}

// Whether the connection is open and quiet, as one that may carry the next request is.
bool Client::Impl::is_usable() {
  if (!socket_.is_open()) return false;
  char byte = 0;
  const auto received = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return buffer_.size() == 0 && received < 0 && (errno == EAGAIN || errno == EINTR);
}

void Client::Impl::connect(SteadyTime deadline) {
  ErrorCode error = asio::error::host_not_found;
  for (const auto& endpoint : resolve(address_)) {
    close();
    socket_.open(endpoint.protocol(), error);
    if (error) continue;
    error = wait(deadline, [&](auto done) { socket_.async_connect(endpoint, std::move(done)); });
    if (!error) return;
  }
  close();
  throw Unavailable(fmt::format("no connection to {}: {}", address_.to_string(), error.message()));
}

std::string Client::Impl::compose(const Request& request) const {
  std::string bytes = fmt::format("{} {} HTTP/1.1\r\n", request.method, request.target);
  const auto append = [&](std::string_view name, std::string_view value) {
    if (value.find_first_of(std::string_view{"\r\n\0", 3}) != std::string_view::npos) {
      throw InvalidInput(fmt::format("the value of the field '{}' holds a control character", name));
    }
    bytes.append(name).append(": ").append(value).append("\r\n");
  };
  if (!request.fields.contains("Host"))
    append("Host", address_.is_unix() ? "localhost" : address_.to_string());
  for (const auto& [name, value] : defaults_) append(name, value);
  for (const auto& [name, value] : request.fields) append(name, value);
  const bool has_framing =
      request.fields.contains("Content-Length") || request.fields.contains("Transfer-Encoding");
  if (announces_body(request) && !has_framing) append("Content-Length", std::to_string(request.body.size()));
  return bytes.append("\r\n").append(request.body);
}

ErrorCode Client::Impl::write(const std::string& bytes, SteadyTime deadline, std::size_t& sent) {
  return wait(deadline, [&](auto done) {
    asio::async_write(socket_, asio::buffer(bytes),
                      [&sent, done](ErrorCode error, std::size_t count) mutable {
                        sent = count;
                        done(error);
                      });
  });
}

ErrorCode Client::Impl::read(bool is_head, SteadyTime deadline, Response& response) {
  for (;;) {
    Parser parser;
    parser.body_limit(body_bytes_max_);
    parser.header_limit(256 * 1024);
    parser.skip(is_head);
    const auto error = wait(
        deadline, [&](auto done) { beast::http::async_read(socket_, buffer_, parser, std::move(done)); });
    if (error) return error;
    if (parser.get().result_int() < 200) continue;
    response = to_response(parser);
    return {};
  }
}

Response Client::Impl::send(const Request& request, std::chrono::milliseconds timeout) {
  if (request.target.empty() ||
      request.target.find_first_of(std::string_view{" \r\n\0", 4}) != std::string::npos) {
    throw InvalidInput(
        "the target of a request is not empty and holds neither spaces nor control characters");
  }
  const auto bytes = compose(request);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  if (!is_usable()) connect(deadline);
  std::size_t sent = 0;
  const auto write_error = write(bytes, deadline, sent);
  if (write_error && sent == 0) {
    close();
    throw Unavailable(fmt::format("{} took no request: {}", address_.to_string(), write_error.message()));
  }
  Response response;
  ErrorCode read_error = write_error;
  // A server that refuses a request half way answers it all the same.
  if (socket_.is_open()) read_error = read(request.method == "HEAD", deadline, response);
  if (read_error || write_error || response.close) close();
  if (read_error) {
    throw OutcomeUnknown(
        fmt::format("no whole answer from {}: {}", address_.to_string(), read_error.message()));
  }
  return response;
}

Client::Client(const std::string& server, std::chrono::milliseconds timeout)
    : impl_{std::make_unique<Impl>(server, timeout)} {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;

void Client::add_default(std::string name, std::string value) {
  impl_->add_default(std::move(name), std::move(value));
}

void Client::limit_body(std::size_t bytes_max) {
  impl_->limit_body(bytes_max);
}

Response Client::send(const Request& request) {
  return impl_->send(request, impl_->timeout());
}

Response Client::send(const Request& request, std::chrono::milliseconds timeout) {
  return impl_->send(request, timeout);
}

}  // namespace fenceguard::http
