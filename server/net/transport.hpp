#pragma once

// Transport: the bytes of one connection, in the clear or under TLS, behind one set of calls. In the clear it
// adds nothing to a socket. The calls that end in _now never wait.
//
// Thread safety: the loop's thread only.

#include <cstddef>
#include <memory>
#include <string_view>
#include <tuple>

#include "server/net/net.hpp"
#include "server/net/poller.hpp"
#include "server/net/read/rest.hpp"

namespace fenceguard::net {

class TlsContext;
class TlsStream;

class Transport {
 public:
  using Error = boost::system::error_code;
  using Read = std::tuple<Error, std::size_t>;

  // What is to follow other bytes is copied behind them up to this size, so that one buffer goes out.
  static constexpr std::size_t copied_bytes_max = 16 * 1024;

  explicit Transport(Socket socket);
  // Under TLS; handshake() comes first.
  Transport(Socket socket, std::shared_ptr<const TlsContext> tls);
  ~Transport();
  Transport(Transport&&) noexcept;
  Transport& operator=(Transport&&) = delete;

  // As the server or the client of its TlsContext. In the clear: done.
  [[nodiscard]] Task<Error> handshake();
  // What the handshake agreed on by ALPN; empty: nothing, or in the clear.
  [[nodiscard]] std::string_view protocol() const noexcept;

  // What is there, up to bytes. would_block: nothing now; end of file: asio::error::eof. Under TLS an end
  // without a farewell is no eof, because any host on the way can forge it.
  [[nodiscard]] Read read_now(char* data, std::size_t bytes);
  // Behind the bytes that the last read_now() gave: received, where there was room.
  [[nodiscard]] Rest rest(std::size_t received, std::size_t room) const noexcept;
  // What the connection takes of first and then second, taken off both. would_block: nothing now.
  [[nodiscard]] Error write_now(std::string_view& first, std::string_view& second);

  // Waits until there is something, which is not taken; or an error. REQUIRES: is_tls().
  [[nodiscard]] Task<Error> wait_bytes();
  // Waits until there is something; at least one byte, or an error.
  [[nodiscard]] Task<Read> read_some(char* data, std::size_t bytes);
  // All of both.
  [[nodiscard]] Task<Error> write_all(std::string_view first, std::string_view second);

  // Takes the socket out of Asio: its events are told to watcher. Until attach() there are only the calls
  // that end in _now, looks, and ends, which end the telling. What came before, and is not taken, is not
  // told: see rest(). False: nothing has changed. REQUIRES: nothing waits on it; both outlive the telling.
  [[nodiscard]] bool detach(Poller& poller, Poller::Watcher& watcher) noexcept;
  // Gives it back to Asio, if it was taken out; nothing is told any more. False: it is closed.
  bool attach() noexcept;
  [[nodiscard]] bool is_detached() const noexcept { return detached_ >= 0; }

  // Every wait ends with operation_aborted.
  void cancel() noexcept;
  // No more is sent. Under TLS with its farewell, if the connection takes it at once.
  void shutdown_send() noexcept;
  // Without a farewell.
  void close() noexcept;
  // Closes in order although the socket was set to reset when it is closed. REQUIRES: nothing is unsent.
  void part_in_order() noexcept;
  // Drops what the kernel still holds of what was sent, and tells the other side so (RST).
  void reset() noexcept;

  [[nodiscard]] bool is_open() const noexcept;
  [[nodiscard]] bool is_tls() const noexcept { return tls_ != nullptr; }
  // Open and quiet, as a connection is that may carry a next message; false if it was closed or bytes came.
  [[nodiscard]] bool is_quiet() noexcept;
  // The other side has ended, though bytes of it may not have been taken yet.
  [[nodiscard]] bool is_hung_up() noexcept;
  // The other side has ended, as far as can be told without taking bytes.
  [[nodiscard]] bool is_ended() noexcept;
  [[nodiscard]] Socket& socket() noexcept { return socket_; }
  // -1: closed.
  [[nodiscard]] int descriptor() noexcept { return is_detached() ? detached_ : socket_.native_handle(); }

 private:
  enum class Look { quiet, bytes, ended };

  [[nodiscard]] Look look() noexcept;
  // Ends the telling, and gives up the descriptor.
  [[nodiscard]] int take_detached() noexcept;
  void close_lingering(bool resets) noexcept;
  [[nodiscard]] Task<Read> read_clear(char* data, std::size_t bytes);
  [[nodiscard]] Task<Error> write_clear(std::string_view first, std::string_view second);

  Socket socket_;
  std::unique_ptr<TlsStream> tls_;
  int detached_ = -1;  // its descriptor, out of Asio
  Poller* poller_ = nullptr;
  Poller::Watcher* watcher_ = nullptr;
};

}  // namespace fenceguard::net
