#include "server/net/transport.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <utility>

#include "server/net/tls_stream.hpp"

namespace fenceguard::net {
namespace {

Transport::Error last_error() noexcept {
  if (errno == EAGAIN || errno == EINTR) return asio::error::would_block;
  return {errno, boost::system::system_category()};
}

ssize_t send_clear(int socket, std::string_view head, std::string_view body) noexcept {
  constexpr int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
  if (body.empty()) return ::send(socket, head.data(), head.size(), flags);
  std::array<iovec, 2> parts{iovec{const_cast<char*>(head.data()), head.size()},
                             iovec{const_cast<char*>(body.data()), body.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return ::sendmsg(socket, &message, flags);
}

}  // namespace

Transport::Transport(Socket socket) : socket_{std::move(socket)} {}

Transport::Transport(Socket socket, std::shared_ptr<const TlsContext> tls) : socket_{std::move(socket)} {
  if (tls) tls_ = std::make_unique<TlsStream>(socket_, std::move(tls));
}

Transport::~Transport() = default;
Transport::Transport(Transport&&) noexcept = default;

Task<Transport::Error> Transport::handshake() {
  if (tls_) return tls_->handshake(socket_);
  return []() -> Task<Error> { co_return Error{}; }();
}

Transport::Read Transport::read_now(char* data, std::size_t bytes) {
  if (tls_) return tls_->read_now(socket_, data, bytes);
  const auto received = ::recv(socket_.native_handle(), data, bytes, MSG_DONTWAIT);
  if (received < 0) return {last_error(), 0};
  if (received == 0) return {asio::error::eof, 0};
  return {Error{}, static_cast<std::size_t>(received)};
}

Transport::Error Transport::write_now(std::string_view& head, std::string_view& body) {
  if (tls_) return tls_->write_now(socket_, head, body);
  const auto sent = send_clear(socket_.native_handle(), head, body);
  if (sent < 0) return last_error();
  const auto bytes = static_cast<std::size_t>(sent);
  const auto of_head = std::min(bytes, head.size());
  head.remove_prefix(of_head);
  body.remove_prefix(bytes - of_head);
  return {};
}

Task<Transport::Read> Transport::read_some(char* data, std::size_t bytes) {
  return tls_ ? tls_->read_some(socket_, data, bytes) : read_clear(data, bytes);
}

Task<Transport::Error> Transport::wait_bytes() {
  return tls_->wait_bytes(socket_);
}

// Asio's own read asks the kernel first, and then once more when there is something.
Task<Transport::Read> Transport::read_clear(char* data, std::size_t bytes) {
  co_return co_await socket_.async_read_some(asio::buffer(data, bytes), as_result);
}

Task<Transport::Error> Transport::write_all(std::string_view head, std::string_view body) {
  return tls_ ? tls_->write_all(socket_, head, body) : write_clear(head, body);
}

Task<Transport::Error> Transport::write_clear(std::string_view head, std::string_view body) {
  const std::array<asio::const_buffer, 2> parts{asio::buffer(head), asio::buffer(body)};
  const auto [error, sent] = co_await asio::async_write(socket_, parts, as_result);
  co_return error;
}

void Transport::cancel() noexcept {
  Error ignored;
  socket_.cancel(ignored);
}

void Transport::shutdown_send() noexcept {
  if (tls_) tls_->say_farewell(socket_);
  Error ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void Transport::close() noexcept {
  Error ignored;
  socket_.close(ignored);
}

void Transport::part_in_order() noexcept {
  Error ignored;
  socket_.set_option(asio::socket_base::linger{false, 0}, ignored);
  socket_.close(ignored);
}

void Transport::reset() noexcept {
  Error ignored;
  socket_.set_option(asio::socket_base::linger{true, 0}, ignored);
  socket_.close(ignored);
}

bool Transport::is_open() const noexcept {
  return socket_.is_open();
}

Transport::Look Transport::look() noexcept {
  if (!socket_.is_open()) return Look::ended;
  if (tls_) {
    const auto error = tls_->look(socket_);
    if (error == asio::error::would_block) return Look::quiet;
    return error ? Look::ended : Look::bytes;
  }
  char byte = 0;
  const auto received = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (received > 0) return Look::bytes;
  return received < 0 && (errno == EAGAIN || errno == EINTR) ? Look::quiet : Look::ended;
}

bool Transport::is_quiet() noexcept {
  return look() == Look::quiet;
}

bool Transport::is_ended() noexcept {
  return look() == Look::ended;
}

}  // namespace fenceguard::net
