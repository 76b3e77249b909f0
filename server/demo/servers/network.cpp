#include "server/demo/servers/network.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <cstdio>
#include <memory>
#include <utility>

#include "guard/error.hpp"
#include "guard/token.hpp"

namespace fenceguard::demo {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Task = asio::awaitable<void>;

constexpr asio::as_tuple_t<asio::deferred_t> as_result{};
constexpr std::size_t piece_bytes = 16 * 1024;

void say(std::string_view line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

tcp::endpoint endpoint_of(const std::string& address) {
  const auto colon = std::min(address.rfind(':'), address.size());
  const auto port = parse_decimal(address.substr(std::min(colon + 1, address.size()))).value_or(0);
  boost::system::error_code error;
  const auto host = asio::ip::make_address(address.substr(0, colon), error);
  if (error || port < 1 || port > 65'535) throw InvalidInput("the network needs HOST:PORT of a storage");
  return {host, static_cast<std::uint16_t>(port)};
}

struct Link {
  tcp::socket sender;
  tcp::socket storage;
  std::string held{};

  void close() {
    boost::system::error_code ignored;
    sender.close(ignored);
    storage.close(ignored);
  }
};
using LinkPointer = std::shared_ptr<Link>;

// One thread, so that nothing needs a lock.
class Network {
 public:
  explicit Network(tcp::endpoint storage)
      : storage_{std::move(storage)},
        acceptor_{context_, tcp::endpoint{asio::ip::address_v4::loopback(), 0}},
        input_{context_, ::dup(STDIN_FILENO)} {}

  void run() {
    asio::co_spawn(context_, obey(), asio::detached);
    asio::co_spawn(context_, accept(), asio::detached);
    say(fmt::format("127.0.0.1:{}", acceptor_.local_endpoint().port()));
    context_.run();
  }

 private:
  Task obey() {
    std::string text;
    while (true) {
      const auto [error, bytes] =
          co_await asio::async_read_until(input_, asio::dynamic_buffer(text, piece_bytes), '\n', as_result);
      if (error) break;
      const auto line = text.substr(0, bytes - 1);
      text.erase(0, bytes);
      if (line == "hold") {
        is_holding_next_ = true;
        say("ready");
      } else if (line == "release") {
        co_await release();
      }
    }
    context_.stop();
  }

  Task accept() {
    while (true) {
      auto [error, socket] = co_await acceptor_.async_accept(as_result);
      if (error) break;
      auto link = std::make_shared<Link>(Link{std::move(socket), tcp::socket{context_}});
      const auto [refused] = co_await link->storage.async_connect(storage_, as_result);
      if (refused) continue;
      asio::co_spawn(context_, carry(link), asio::detached);
      asio::co_spawn(context_, carry_back(link), asio::detached);
    }
    context_.stop();
  }

  Task carry(LinkPointer link) {
    std::array<char, piece_bytes> piece;
    while (true) {
      const auto [error, bytes] = co_await link->sender.async_read_some(asio::buffer(piece), as_result);
      if (error) break;
      if (is_held(link)) {
        link->held.append(piece.data(), bytes);
        continue;
      }
      const auto [broken, written] =
          co_await asio::async_write(link->storage, asio::buffer(piece.data(), bytes), as_result);
      if (broken) break;
    }
    // What is in the network arrives, also when its sender has long gone.
    if (held_ != link) link->close();
  }

  Task carry_back(LinkPointer link) {
    std::array<char, piece_bytes> piece;
    while (true) {
      const auto [error, bytes] = co_await link->storage.async_read_some(asio::buffer(piece), as_result);
      if (error) break;
      const auto [broken, written] =
          co_await asio::async_write(link->sender, asio::buffer(piece.data(), bytes), as_result);
      if (broken) break;
    }
    link->close();
  }

  bool is_held(const LinkPointer& link) {
    if (is_holding_next_) {
      is_holding_next_ = false;
      held_ = link;
      say("held");
    }
    return held_ == link;
  }

  Task release() {
    const auto link = held_;
    while (link && !link->held.empty()) {
      const auto bytes = std::exchange(link->held, {});
      const auto [error, written] = co_await asio::async_write(link->storage, asio::buffer(bytes), as_result);
      if (error) break;
    }
    held_.reset();
    is_holding_next_ = false;
    say("released");
  }

  asio::io_context context_{1};
  const tcp::endpoint storage_;
  tcp::acceptor acceptor_;
  asio::posix::stream_descriptor input_;
  bool is_holding_next_ = false;
  LinkPointer held_;
};

}  // namespace

void run_network(const std::string& storage) {
  const auto endpoint = endpoint_of(storage);
  try {
    Network{endpoint}.run();
  } catch (const boost::system::system_error& error) {
    throw Unavailable(fmt::format("the network: {}", error.what()));
  }
}

}  // namespace fenceguard::demo
