#include "server/net/client/connect.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <optional>

#include "guard/support/look_up.hpp"

namespace fenceguard::net {
namespace {

// Of one coroutine, whose timer ends at the limit or is cancelled by the answer.
struct Question {
  explicit Question(asio::io_context& context) : timer{context} {}
  Timer timer;
  std::optional<Lookup> answer{};
};

template <class Value>
bool set_option(int socket, int level, int name, const Value& value) noexcept {
  return ::setsockopt(socket, level, name, &value, sizeof value) == 0;
}

}  // namespace

Task<Resolved> resolve(Loop& loop, Address address, std::chrono::milliseconds limit) {
  Resolved resolved;
  if (address.is_unix()) {
    resolved.endpoints = resolve(address);
    co_return resolved;
  }
  const auto question = std::make_shared<Question>(loop.context());
  question->timer.expires_after(limit);
  look_up(address.host, [to = loop.weak_from_this(), weak = std::weak_ptr{question}](const Lookup& answer) {
    const auto living = to.lock();
    if (!living) return;
    living->post([weak, answer] {
      const auto asked = weak.lock();
      if (!asked) return;
      asked->answer = answer;
      asked->timer.cancel();
    });
  });
  if (!question->answer) (void)co_await question->timer.async_wait(as_result);
  resolved.error = "the resolver did not answer in time";
  if (!question->answer) co_return resolved;
  resolved.error = question->answer->error;
  for (const auto& text : question->answer->addresses) {
    boost::system::error_code error;
    const auto number = asio::ip::make_address(text, error);
    if (!error) resolved.endpoints.emplace_back(asio::ip::tcp::endpoint{number, address.port});
  }
  co_return resolved;
}

boost::system::error_code open_socket(Socket& socket, const Endpoint& endpoint,
                                      const SocketOptions& options) {
  boost::system::error_code error;
  socket.open(endpoint.protocol(), error);
  if (error) return error;
  const int descriptor = socket.native_handle();
  bool is_fit = ::fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0;
  if (options.resets) is_fit &= set_option(descriptor, SOL_SOCKET, SO_LINGER, linger{1, 0});
  if (options.unacknowledged_max.count() > 0) {
    const auto limit = static_cast<unsigned>(options.unacknowledged_max.count());
    is_fit &= set_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, limit);
  }
  if (!is_fit) return asio::error::no_protocol_option;
  if (endpoint.protocol().family() == AF_UNIX) return {};
  (void)set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  if (!options.probes) return {};
  (void)set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  (void)set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  (void)set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  (void)set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
  return {};
}

}  // namespace fenceguard::net
