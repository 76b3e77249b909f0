#include "server/net/listener.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>

#include "guard/error.hpp"

namespace fenceguard::net {
namespace {

namespace error = asio::error;

constexpr int backlog = 4096;
// Connections above the limit that wait for another to give way.
constexpr std::int64_t beyond_limit_max = 16;
constexpr std::chrono::milliseconds pause_when_out_of_resources{100};

using ReuseAddress = asio::detail::socket_option::boolean<SOL_SOCKET, SO_REUSEADDR>;
// Connections inherit these.
using NoDelay = asio::detail::socket_option::boolean<IPPROTO_TCP, TCP_NODELAY>;
using KeepAlive = asio::detail::socket_option::boolean<SOL_SOCKET, SO_KEEPALIVE>;
using ProbeAfter = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPIDLE>;
using ProbeEach = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPINTVL>;
using ProbesMax = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPCNT>;

std::string sentence(const boost::system::error_code& code) {
  if (code == error::address_in_use)
    return "another process listens there already; choose another address, or port 0 for a free one";
  if (code == error::access_denied)
    return "this user is not permitted to; choose another address or a port above 1023";
  if (code == boost::system::errc::address_not_available) return "this machine has no such address";
  return code.message();
}

[[noreturn]] void raise_unavailable(const Address& address, const std::string& why) {
  throw Unavailable(fmt::format("cannot listen on {}: {}", address.to_string(), why));
}

enum class Socketfile { live, dead, other };

// What is at the path of a Unix socket that could not be bound.
Socketfile look_at(const Address& address, const Endpoint& endpoint) {
  struct stat status {};
  if (::lstat(address.path.c_str(), &status) != 0)
    return errno == ENOENT ? Socketfile::dead : Socketfile::other;
  if (!S_ISSOCK(status.st_mode)) return Socketfile::other;
  asio::io_context context;
  Socket probe{context};
  boost::system::error_code code;
  probe.open(endpoint.protocol(), code);
  probe.non_blocking(true, code);
  probe.connect(endpoint, code);
  return code == error::connection_refused || code == boost::system::errc::no_such_file_or_directory
             ? Socketfile::dead
             : Socketfile::live;
}

}  // namespace

Listener::Listener(std::vector<Loop*> loops, const Address& address, std::shared_ptr<Service> service)
    : loops_{std::move(loops)},
      service_{std::move(service)},
      acceptor_{loops_.front()->context()},
      pause_{loops_.front()->context()} {
  bind(address);
}

Listener::~Listener() {
  remove_file();
}

void Listener::bind(const Address& address) {
  const auto endpoints = resolve(address);
  if (address.is_unix()) {
    bind_unix(address, endpoints.front());
    return;
  }
  boost::system::error_code code;
  for (const auto& endpoint : endpoints) {
    bind_to(endpoint, code);
    if (!code) {
      address_ = to_string(acceptor_.local_endpoint());
      return;
    }
  }
  raise_unavailable(address, sentence(code));
}

void Listener::bind_to(const Endpoint& endpoint, boost::system::error_code& code) {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  acceptor_.open(endpoint.protocol(), code);
  if (code) return;
  if (endpoint.protocol().family() != AF_UNIX) {
    acceptor_.set_option(ReuseAddress{true}, ignored);
    acceptor_.set_option(NoDelay{true}, ignored);
    // A client whose machine has gone says nothing, and is found out within a minute and a half.
    acceptor_.set_option(KeepAlive{true}, ignored);
    acceptor_.set_option(ProbeAfter{60}, ignored);
    acceptor_.set_option(ProbeEach{10}, ignored);
    acceptor_.set_option(ProbesMax{3}, ignored);
  }
  acceptor_.bind(endpoint, code);
  if (!code) acceptor_.listen(backlog, code);
}

void Listener::bind_unix(const Address& address, const Endpoint& endpoint) {
  boost::system::error_code code;
  bind_to(endpoint, code);
  if (code == error::address_in_use) {
    const auto found = look_at(address, endpoint);
    if (found == Socketfile::other) raise_unavailable(address, "there is something else at that path");
    if (found == Socketfile::live) raise_unavailable(address, sentence(code));
    ::unlink(address.path.c_str());
    bind_to(endpoint, code);
  }
  if (code == boost::system::errc::permission_denied ||
      code == boost::system::errc::no_such_file_or_directory) {
    raise_unavailable(address, "its folder does not exist or cannot be written to");
  }
  if (code) raise_unavailable(address, sentence(code));
  struct stat status {};
  if (::lstat(address.path.c_str(), &status) == 0) {
    path_ = address.path;
    device_ = status.st_dev;
    inode_ = status.st_ino;
  }
  address_ = address.to_string();
}

void Listener::remove_file() noexcept {
  struct stat status {};
  const bool is_ours = !path_.empty() && ::lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ &&
                       status.st_ino == inode_;
  if (is_ours) ::unlink(path_.c_str());
  path_.clear();
}

void Listener::start() {
  asio::co_spawn(loops_.front()->context(), run(), asio::detached);
}

void Listener::close() {
  remove_file();
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
}

Task<void> Listener::run() {
  const auto self = shared_from_this();
  while (acceptor_.is_open()) {
    try {
      co_await accept_next();
    } catch (...) {
      // Out of memory for one connection.
    }
  }
  service_->counter.leave();
}

Task<void> Listener::accept_next() {
  Loop& loop = *loops_[turn_++ % loops_.size()];
  auto [code, socket] = co_await acceptor_.async_accept(loop.context().get_executor(), as_result);
  if (!code) {
    admit(loop, std::move(socket));
  } else if (code != error::operation_aborted && code != error::connection_aborted) {
    // Out of descriptors or memory, which others have to give back first.
    pause_.expires_after(pause_when_out_of_resources);
    co_await pause_.async_wait(as_result);
  }
}

void Listener::admit(Loop& loop, Socket socket) {
  const auto open = service_->connections.fetch_add(1);
  const auto most = service_->connections_max;
  if (open >= most + beyond_limit_max) {
    service_->connections.fetch_sub(1);
    return;
  }
  service_->counter.enter();
  try {
    auto session = service_->make_session(loop, std::move(socket));
    if (open >= most) return make_room(std::move(session), turn_ % loops_.size(), loops_.size());
    asio::post(loop.context(), [session = std::move(session)] { session->start(); });
  } catch (...) {
    service_->connections.fetch_sub(1);
    service_->counter.leave();
    throw;
  }
}

void Listener::make_room(std::shared_ptr<Session> newcomer, std::size_t at, std::size_t left) {
  Loop& loop = *loops_[at];
  asio::post(loop.context(), [self = shared_from_this(), newcomer = std::move(newcomer), &loop, at, left] {
    try {
      if (loop.end_longest_waiting(*self->service_)) {
        asio::post(newcomer->loop().context(), [newcomer] { newcomer->start(); });
      } else if (left > 1) {
        self->make_room(newcomer, (at + 1) % self->loops_.size(), left - 1);
      } else {
        newcomer->decline();
      }
    } catch (...) {
      newcomer->decline();
    }
  });
}

}  // namespace fenceguard::net
