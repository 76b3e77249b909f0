#include "server/net/tls/tls_stream.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/ssl/error.hpp>
#include <cerrno>
#include <new>
#include <utility>

namespace fenceguard::net {

TlsStream::TlsStream(Socket& socket, std::shared_ptr<const TlsContext> context)
    : context_{std::move(context)}, ssl_{context_->make_connection()} {
  if (!ssl_) throw std::bad_alloc{};
  if (::SSL_set_fd(ssl_, socket.native_handle()) != 1) {
    ::SSL_free(ssl_);
    throw std::bad_alloc{};
  }
  ::SSL_set_read_ahead(ssl_, 1);
  auto* const source = ::SSL_get_rbio(ssl_);
  ::BIO_set_callback_ex(source, note_read);
  ::BIO_set_callback_arg(source, reinterpret_cast<char*>(this));
  if (context_->is_server()) {
    ::SSL_set_accept_state(ssl_);
  } else {
    ::SSL_set_connect_state(ssl_);
    context_->name_server(*ssl_);
  }
}

TlsStream::~TlsStream() {
  ::SSL_free(ssl_);
}

Task<TlsStream::Error> TlsStream::handshake(Socket& socket) {
  Error error;
  socket.native_non_blocking(true, error);
  while (!error) {
    ::ERR_clear_error();
    error = outcome(::SSL_do_handshake(ssl_));
    if (error != asio::error::would_block) break;
    const auto [wait_error] = co_await wait(socket);
    error = wait_error;
  }
  is_established_ = !error;
  co_return error;
}

std::string_view TlsStream::protocol() const noexcept {
  const unsigned char* name = nullptr;
  unsigned int bytes = 0;
  ::SSL_get0_alpn_selected(ssl_, &name, &bytes);
  return {reinterpret_cast<const char*>(name), bytes};
}

TlsStream::Error TlsStream::outcome(int result) noexcept {
  if (result > 0) return {};
  const auto system_error = errno;
  switch (::SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
      wants_write_ = false;
      return asio::error::would_block;
    case SSL_ERROR_WANT_WRITE:
      wants_write_ = true;
      return asio::error::would_block;
    case SSL_ERROR_ZERO_RETURN:
      return asio::error::eof;
    default:
      break;
  }
  is_broken_ = true;
  const auto code = ::ERR_peek_last_error();
  if (code == 0 && system_error != 0) return {system_error, boost::system::system_category()};
  // The other side ended without a farewell.
  if (code == 0 || ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
    return asio::error::connection_reset;
  return {static_cast<int>(code), asio::error::get_ssl_category()};
}

TlsStream::Read TlsStream::read_now(bool is_open, char* data, std::size_t bytes) {
  if (!is_open) return {asio::error::bad_descriptor, 0};
  ::ERR_clear_error();
  errno = 0;
  std::size_t received = 0;
  is_socket_empty_ = false;
  const auto error = outcome(::SSL_read_ex(ssl_, data, bytes, &received));
  rest_ = ::SSL_has_pending(ssl_) != 0 ? Rest::more : is_socket_empty_ ? Rest::none : Rest::perhaps;
  return {error, received};
}

// How much OpenSSL asks the socket for is its own affair: for the head of a record much, for the rest of one
// that it has begun no more than that. Where the last read gave less, what comes later is told.
long TlsStream::note_read(bio_st* source, int operation, const char* /*data*/, std::size_t asked,
                          int /*argi*/, long /*argl*/, int result, std::size_t* taken) noexcept {
  if (operation == (BIO_CB_READ | BIO_CB_RETURN))
    reinterpret_cast<TlsStream*>(::BIO_get_callback_arg(source))->is_socket_empty_ =
        result > 0 && *taken < asked;
  return result;
}

TlsStream::Error TlsStream::write_part(std::string_view& part) noexcept {
  while (!part.empty()) {
    ::ERR_clear_error();
    errno = 0;
    std::size_t sent = 0;
    const auto error = outcome(::SSL_write_ex(ssl_, part.data(), part.size(), &sent));
    if (error) return error;
    part.remove_prefix(sent);
  }
  return {};
}

TlsStream::Error TlsStream::write_now(bool is_open, std::string_view& first, std::string_view& second) {
  if (!is_open) return asio::error::bad_descriptor;
  const auto error = write_part(first);
  return error ? error : write_part(second);
}

Task<TlsStream::Read> TlsStream::read_some(Socket& socket, char* data, std::size_t bytes) {
  for (;;) {
    const auto read = read_now(socket.is_open(), data, bytes);
    if (std::get<0>(read) != asio::error::would_block) co_return read;
    const auto [error] = co_await wait(socket);
    if (error) co_return Read{error, 0};
  }
}

Task<TlsStream::Error> TlsStream::wait_bytes(Socket& socket) {
  for (;;) {
    const auto error = look(socket.is_open());
    if (error != asio::error::would_block) co_return error;
    const auto [wait_error] = co_await wait(socket);
    if (wait_error) co_return wait_error;
  }
}

Task<TlsStream::Error> TlsStream::write_all(Socket& socket, std::string_view first, std::string_view second) {
  for (;;) {
    const auto error = write_now(socket.is_open(), first, second);
    if (error != asio::error::would_block) co_return error;
    const auto [wait_error] = co_await wait(socket);
    if (wait_error) co_return wait_error;
  }
}

void TlsStream::say_farewell(bool is_open) noexcept {
  if (!is_established_ || is_broken_ || !is_open) return;
  ::ERR_clear_error();
  ::SSL_shutdown(ssl_);
  ::ERR_clear_error();
}

TlsStream::Error TlsStream::look(bool is_open) noexcept {
  if (!is_open) return asio::error::bad_descriptor;
  ::ERR_clear_error();
  errno = 0;
  char byte = 0;
  std::size_t seen = 0;
  return outcome(::SSL_peek_ex(ssl_, &byte, 1, &seen));
}

}  // namespace fenceguard::net
