#pragma once

// TlsStream: TLS on a Transport's socket: OpenSSL reads and writes the descriptor itself, and says when it
// must be waited for. The calls mean what those of the Transport mean.
//
// Thread safety: the loop's thread only, which blocks SIGPIPE: OpenSSL writes without MSG_NOSIGNAL.

#include <cstddef>
#include <memory>
#include <string_view>
#include <tuple>

#include "server/net/net.hpp"
#include "server/net/read/rest.hpp"
#include "server/net/tls/tls.hpp"

struct bio_st;
struct ssl_st;

namespace fenceguard::net {

class TlsStream {
 public:
  using Error = boost::system::error_code;
  using Read = std::tuple<Error, std::size_t>;

  // socket: that of every later call; its descriptor stays the same. Throws std::bad_alloc.
  TlsStream(Socket& socket, std::shared_ptr<const TlsContext> context);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  [[nodiscard]] Task<Error> handshake(Socket& socket);
  // What the handshake agreed on by ALPN; empty: nothing.
  [[nodiscard]] std::string_view protocol() const noexcept;
  // is_open: the descriptor is still the socket's.
  [[nodiscard]] Read read_now(bool is_open, char* data, std::size_t bytes);
  [[nodiscard]] Error write_now(bool is_open, std::string_view& first, std::string_view& second);
  // Behind what the last read gave.
  [[nodiscard]] Rest rest() const noexcept { return rest_; }
  // Waits until something can be read, or an error.
  [[nodiscard]] Task<Error> wait_bytes(Socket& socket);
  [[nodiscard]] Task<Read> read_some(Socket& socket, char* data, std::size_t bytes);
  [[nodiscard]] Task<Error> write_all(Socket& socket, std::string_view first, std::string_view second);
  void say_farewell(bool is_open) noexcept;
  // would_block: quiet; no error: bytes of the other side are there; else it has ended.
  [[nodiscard]] Error look(bool is_open) noexcept;

 private:
  // A callback of OpenSSL's, at each read of the socket.
  static long note_read(bio_st* source, int operation, const char* data, std::size_t asked, int argi,
                        long argl, int result, std::size_t* taken) noexcept;
  // The error that goes with what an OpenSSL call returned; would_block sets what is to be waited for.
  [[nodiscard]] Error outcome(int result) noexcept;
  [[nodiscard]] Error write_part(std::string_view& part) noexcept;
  // Waits for what the last call wanted.
  [[nodiscard]] auto wait(Socket& socket) {
    return socket.async_wait(wants_write_ ? Socket::wait_write : Socket::wait_read, as_result);
  }

  const std::shared_ptr<const TlsContext> context_;
  ssl_st* ssl_;
  Rest rest_ = Rest::perhaps;
  bool is_socket_empty_ = false;
  bool wants_write_ = false;
  bool is_established_ = false;
  bool is_broken_ = false;
};

}  // namespace fenceguard::net
