// How a session begins: what its client wants, and the connection to PostgreSQL.

#include <sys/socket.h>

#include <utility>

#include "server/net/client/connect.hpp"
#include "server/postgres/session.hpp"
#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire {
namespace {

constexpr char tls_handshake = 0x16;  // the type of a first record; a startup packet of that size is refused

}  // namespace

net::Task<std::optional<Startup>> Session::read_startup_message() {
  if (shared_->context.tls) {
    const bool is_well = co_await take_direct_tls();
    if (!is_well) co_return std::nullopt;
  }
  // At most one request for each kind of encryption comes before it.
  for (int messages = 0; messages < 3;) {
    auto startup = read_startup(client_->buffer().view());
    if (startup.kind == Startup::Kind::part) {
      client_->set_deadline(shared_->context.limits.header_max);
      if (client_->filled(co_await client_->fill()) != net::Connection::Arrival::ready)
        co_return std::nullopt;
      client_->clear_deadline();
      continue;
    }
    ++messages;
    if (startup.kind == Startup::Kind::malformed) {
      refuse("08P01", "invalid startup packet");
      co_return std::nullopt;
    }
    const std::string message{client_->buffer().view().substr(0, startup.size)};
    client_->buffer().consume(startup.size);
    if (startup.kind == Startup::Kind::cancel) {
      co_await cancel(message);
      co_return std::nullopt;
    }
    if (startup.kind == Startup::Kind::start) {
      if (shared_->context.tls && !client_->transport().is_tls()) {
        refuse("28000", "this server takes connections with TLS only");
        co_return std::nullopt;
      }
      co_return startup;
    }
    if (!co_await answer_tls(startup)) co_return std::nullopt;
  }
  co_return std::nullopt;
}

net::Task<bool> Session::answer_tls(const Startup& startup) {
  const bool is_taken =
      startup.kind == Startup::Kind::tls && shared_->context.tls && !client_->transport().is_tls();
  // What was sent in the clear behind it must not count as if it had been encrypted.
  if (is_taken && !client_->buffer().empty()) {
    refuse("08P01", "received unencrypted data after SSL request");
    co_return false;
  }
  if (co_await client_->transport().write_all(is_taken ? "S" : "N", {})) co_return false;
  if (!is_taken) co_return true;
  co_return co_await begin_tls();
}

net::Task<bool> Session::take_direct_tls() {
  auto& transport = client_->transport();
  client_->set_deadline(shared_->context.limits.header_max);
  const auto [error] = co_await transport.socket().async_wait(net::Socket::wait_read, net::as_result);
  client_->clear_deadline();
  char first = 0;
  if (error || ::recv(transport.descriptor(), &first, 1, MSG_PEEK | MSG_DONTWAIT) != 1) co_return false;
  if (first != tls_handshake) co_return true;
  const bool is_begun = co_await begin_tls();
  // Without the name it may be another protocol's client that somebody leads here (ALPACA).
  co_return is_begun && client_->transport().protocol() == "postgresql";
}

net::Task<bool> Session::begin_tls() {
  auto socket = std::move(client_->transport().socket());
  client_.emplace(loop_, net::Transport{std::move(socket), shared_->context.tls});
  client_->set_deadline(shared_->context.limits.header_max);
  const auto error = co_await client_->transport().handshake();
  client_->clear_deadline();
  co_return !error;
}

// Whom it names only the server knows that gave the key; the others ignore it. None answers.
net::Task<void> Session::cancel(std::string message) {
  for (const auto& host : shared_->options.hosts) {
    if (!co_await connect_to(host)) continue;
    char byte = 0;
    client_->set_deadline(shared_->options.connect_timeout);
    if (!co_await server_->write_all(message, {})) (void)co_await server_->read_some(&byte, 1);
    client_->clear_deadline();
    server_.emplace(net::Socket{loop_.context()});
  }
}

net::Task<bool> Session::connect() {
  const auto& hosts = shared_->options.hosts;
  const auto first = shared_->first.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < hosts.size() && !is_cut_ && !relay_->is_over(); ++i) {
    host_ = (first + i) % hosts.size();
    if (co_await connect_to(hosts[host_])) co_return true;
  }
  if (relay_->is_over()) co_return false;
  relay_.reset();
  refuse("08001", "the sidecar cannot reach the server");
  co_return false;
}

net::Task<bool> Session::connect_to(const Host& host) {
  const auto limit = shared_->options.connect_timeout;
  const auto found = co_await net::resolve(loop_, host.address, limit);
  for (const auto& endpoint : found.endpoints) {
    if (is_cut_) co_return false;
    server_.emplace(net::Socket{loop_.context()});
    auto& socket = server_->socket();
    if (net::open_socket(socket, endpoint, {})) continue;
    boost::system::error_code error;
    socket.non_blocking(true, error);
    client_->set_deadline(limit);
    const auto [outcome] = co_await socket.async_connect(endpoint, net::as_result);
    const bool is_connected = !outcome && (!host.tls || co_await encrypt(host));
    client_->clear_deadline();
    if (is_connected && !is_cut_) co_return true;
  }
  co_return false;
}

// A server that does not is not spoken to.
net::Task<bool> Session::encrypt(const Host& host) {
  constexpr std::string_view request{"\0\0\0\x08\x04\xd2\x16\x2f", 8};
  if (co_await server_->write_all(request, {})) co_return false;
  char answer = 0;
  const auto [error, bytes] = co_await server_->read_some(&answer, 1);
  if (error || answer != 'S') co_return false;
  auto socket = std::move(server_->socket());
  server_.emplace(std::move(socket), host.tls);
  co_return !co_await server_->handshake();
}

void Session::refuse(std::string_view state, std::string_view message) {
  add_error(refusal_, {.severity = "FATAL", .state = state, .message = message});
}

}  // namespace fenceguard::pgwire
