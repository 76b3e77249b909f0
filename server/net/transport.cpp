#include "server/net/transport.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <utility>

#include "server/net/tls/tls_stream.hpp"

namespace fenceguard::net {
namespace {

Transport::Error last_error() noexcept {
  if (errno == EAGAIN || errno == EINTR) return asio::error::would_block;
  return {errno, boost::system::system_category()};
}

ssize_t send_clear(int socket, std::string_view first, std::string_view second) noexcept {
  constexpr int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
  if (second.empty()) return ::send(socket, first.data(), first.size(), flags);
  std::array<iovec, 2> parts{iovec{const_cast<char*>(first.data()), first.size()},
                             iovec{const_cast<char*>(second.data()), second.size()}};
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

Transport::~Transport() {
  if (is_detached()) ::close(take_detached());
}

Transport::Transport(Transport&& other) noexcept
    : socket_{std::move(other.socket_)},
      tls_{std::move(other.tls_)},
      detached_{std::exchange(other.detached_, -1)},
      poller_{other.poller_},
      watcher_{other.watcher_} {}

bool Transport::detach(Poller& poller, Poller::Watcher& watcher) noexcept {
  Error error;
  if (!socket_.is_open()) return false;
  const int descriptor = socket_.release(error);
  if (error) return false;
  detached_ = descriptor;
  poller_ = &poller;
  watcher_ = &watcher;
  if (poller.add(descriptor, watcher)) return true;
  poller_ = nullptr;
  (void)attach();
  return false;
}

bool Transport::attach() noexcept {
  if (!is_detached()) return socket_.is_open();
  const int descriptor = take_detached();
  Error error;
  // Its family does not matter any more once it is connected.
  socket_.assign(Protocol{AF_INET, IPPROTO_TCP}, descriptor, error);
  if (error) ::close(descriptor);
  return !error;
}

int Transport::take_detached() noexcept {
  if (poller_ != nullptr) poller_->remove(detached_, *watcher_);
  poller_ = nullptr;
  return std::exchange(detached_, -1);
}

Task<Transport::Error> Transport::handshake() {
  if (tls_) return tls_->handshake(socket_);
  return []() -> Task<Error> { co_return Error{}; }();
}

std::string_view Transport::protocol() const noexcept {
  return tls_ ? tls_->protocol() : std::string_view{};
}

Transport::Read Transport::read_now(char* data, std::size_t bytes) {
  if (tls_) return tls_->read_now(is_open(), data, bytes);
  const auto received = ::recv(descriptor(), data, bytes, MSG_DONTWAIT);
  if (received < 0) return {last_error(), 0};
  if (received == 0) return {asio::error::eof, 0};
  return {Error{}, static_cast<std::size_t>(received)};
}

Rest Transport::rest(std::size_t received, std::size_t room) const noexcept {
  if (tls_) return tls_->rest();
  return received < room ? Rest::none : Rest::more;
}

Transport::Error Transport::write_now(std::string_view& first, std::string_view& second) {
  if (tls_) return tls_->write_now(is_open(), first, second);
  const auto sent = send_clear(descriptor(), first, second);
  if (sent < 0) return last_error();
  const auto bytes = static_cast<std::size_t>(sent);
  const auto of_first = std::min(bytes, first.size());
  first.remove_prefix(of_first);
  second.remove_prefix(bytes - of_first);
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

Task<Transport::Error> Transport::write_all(std::string_view first, std::string_view second) {
  return tls_ ? tls_->write_all(socket_, first, second) : write_clear(first, second);
}

Task<Transport::Error> Transport::write_clear(std::string_view first, std::string_view second) {
  const std::array<asio::const_buffer, 2> parts{asio::buffer(first), asio::buffer(second)};
  const auto [error, sent] = co_await asio::async_write(socket_, parts, as_result);
  co_return error;
}

void Transport::cancel() noexcept {
  Error ignored;
  socket_.cancel(ignored);
}

void Transport::shutdown_send() noexcept {
  if (tls_) tls_->say_farewell(is_open());
  ::shutdown(descriptor(), SHUT_WR);
}

void Transport::close() noexcept {
  Error ignored;
  if (is_detached()) ::close(take_detached());
  socket_.close(ignored);
}

void Transport::part_in_order() noexcept {
  close_lingering(false);
}

void Transport::reset() noexcept {
  close_lingering(true);
}

void Transport::close_lingering(bool resets) noexcept {
  const linger option{resets ? 1 : 0, 0};
  ::setsockopt(descriptor(), SOL_SOCKET, SO_LINGER, &option, sizeof option);
  close();
}

bool Transport::is_open() const noexcept {
  return is_detached() || socket_.is_open();
}

Transport::Look Transport::look() noexcept {
  if (!is_open()) return Look::ended;
  if (tls_) {
    const auto error = tls_->look(is_open());
    if (error == asio::error::would_block) return Look::quiet;
    return error ? Look::ended : Look::bytes;
  }
  char byte = 0;
  const auto received = ::recv(descriptor(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (received > 0) return Look::bytes;
  return received < 0 && (errno == EAGAIN || errno == EINTR) ? Look::quiet : Look::ended;
}

bool Transport::is_quiet() noexcept {
  return look() == Look::quiet;
}

bool Transport::is_hung_up() noexcept {
  if (!is_open()) return true;
  pollfd look{.fd = descriptor(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&look, 1, 0) > 0;
}

bool Transport::is_ended() noexcept {
  return look() == Look::ended;
}

}  // namespace fenceguard::net
