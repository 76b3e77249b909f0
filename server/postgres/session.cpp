#include "server/postgres/session.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "server/data/report.hpp"
#include "server/net/address.hpp"
#include "server/net/client/connect.hpp"
#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire {
namespace {

namespace asio = boost::asio;

constexpr std::size_t pause_bytes = 256 * 1024;  // that wait for one side before no more is read for it
constexpr std::size_t server_bytes_a_read = 16 * 1024;
constexpr std::size_t kept_bytes_max = 4 * 1024;
constexpr std::chrono::seconds login_max{60};  // as PostgreSQL's authentication_timeout
constexpr char tls_handshake = 0x16;  // the type of a first record; a startup packet of that size is refused
// For what is left to be sent to a client whose session is over.
constexpr std::chrono::seconds parting_max{10};
constexpr std::chrono::seconds server_look_after{2}, client_look_after{1};

void free_memory(std::string& text) {
  text.clear();
  if (text.capacity() > kept_bytes_max) text.shrink_to_fit();
}

std::string objection_to_begin(std::string_view begun, Token present) {
  const auto token = Token::parse(begun);
  if (!token) return "fenceguard.begin is the token of a lease: digits, without a leading zero";
  return fmt::format("the lease of token {} is over, and this sidecar's has {}; start again from the read",
                     to_string(*token), to_string(present));
}

}  // namespace

Session::Session(net::Loop& loop, net::Socket socket, std::shared_ptr<Shared> shared,
                 std::shared_ptr<net::Service> service)
    : loop_{loop}, shared_{std::move(shared)}, service_{std::move(service)} {
  server_.transport.emplace(net::Socket{loop.context()});
  client_.emplace(loop, net::Transport{std::move(socket)});
}

Session::~Session() = default;

void Session::start() {
  try {
    loop_.add(*this);
    peer_ = net::peer_host(client_->transport().descriptor());
    if (peer_ == "unknown") peer_ = "unix";
    asio::co_spawn(loop_.context(), run(), asio::detached);
  } catch (...) {
    finish();
  }
}

// The client hears why once it has asked for what it wants: before, it may expect the answer to a request
// for TLS.
void Session::decline() {
  is_declined_ = true;
  start();
}

void Session::finish() {
  if (std::exchange(end_, End::finished) == End::finished) return;
  if (client_->transport().is_tls() && !client_->is_cut()) client_->transport().shutdown_send();
  client_->transport().close();
  server_.transport->close();
  if (std::exchange(is_counted_, false)) loop_.in_flight.fetch_sub(1);
  loop_.remove(*this);
  service_->connections.fetch_sub(1);
  service_->counter.leave();
}

net::SteadyTime Session::deadline() const noexcept {
  return std::min({client_->deadline(), looks_.at_server, looks_.at_client});
}

// One deadline for whatever is waited for: before the client is let in that may be the server.
void Session::expire(net::SteadyTime now) {
  if (looks_.at_server <= now) {
    looks_.at_server = net::SteadyTime::max();
    looks_.is_server_due = true;
    wake();
  }
  if (looks_.at_client <= now) {
    looks_.at_client = net::SteadyTime::max();
    wake();
  }
  const bool is_due = client_->deadline() <= now;
  client_->expire(now);
  if (!is_due) return;
  if (is_client_gone_) return cut();
  if (server_.state != Server::State::reading) server_.transport->cancel();
}

net::Task<void> Session::run() {
  const auto self = shared_from_this();
  try {
    auto startup = co_await read_startup_message();
    if (startup && is_declined_) {
      refuse("53300", "sorry, too many clients already");
    } else if (startup && !loop_.is_draining()) {
      co_await begin(*std::move(startup));
      if (relay_ && !relay_->is_over() && co_await connect()) {
        server_.state = Server::State::reading;
        asio::co_spawn(loop_.context(), read_server(), asio::detached);
        client_->set_deadline(login_max);
        flush();
        co_await read_client();
      } else {
        flush();
      }
    }
    // What a client sent that has gone is done, for as long as the server goes on with it.
    if (!is_client_gone_ || to_client_.is_sending) client_->set_deadline(parting_max);
    if (!refusal_.empty()) (void)co_await client_->transport().write_all(refusal_, {});
    // What was said last is sent, unless it cannot be.
    while (!is_cut() && relay_ && !is_sent()) co_await client_->wakeup().wait();
    server_.transport->close();
    server_.wakeup.wake();
    if (!is_client_gone_ && !is_cut()) co_await client_->linger();
  } catch (...) {
    // Out of memory, most likely: this connection ends, the others go on.
  }
  cut();
  try {
    while (server_.state == Server::State::reading || to_client_.is_sending || server_.outlet.is_sending)
      co_await client_->wakeup().wait();
  } catch (...) {
    // As above.
  }
  finish();
}

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
    if (!co_await server_.transport->write_all(message, {}))
      (void)co_await server_.transport->read_some(&byte, 1);
    client_->clear_deadline();
    server_.transport.emplace(net::Socket{loop_.context()});
  }
}

net::Task<bool> Session::connect() {
  const auto& hosts = shared_->options.hosts;
  const auto first = shared_->first.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < hosts.size() && !is_cut() && !relay_->is_over(); ++i) {
    server_.host = (first + i) % hosts.size();
    if (co_await connect_to(hosts[server_.host])) co_return true;
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
    if (is_cut()) co_return false;
    server_.transport.emplace(net::Socket{loop_.context()});
    auto& socket = server_.transport->socket();
    if (net::open_socket(socket, endpoint, {})) continue;
    boost::system::error_code error;
    socket.non_blocking(true, error);
    client_->set_deadline(limit);
    const auto [outcome] = co_await socket.async_connect(endpoint, net::as_result);
    const bool is_connected = !outcome && (!host.tls || co_await encrypt(host));
    client_->clear_deadline();
    if (is_connected && !is_cut()) co_return true;
  }
  co_return false;
}

// A server that does not is not spoken to.
net::Task<bool> Session::encrypt(const Host& host) {
  constexpr std::string_view request{"\0\0\0\x08\x04\xd2\x16\x2f", 8};
  if (co_await server_.transport->write_all(request, {})) co_return false;
  char answer = 0;
  const auto [error, bytes] = co_await server_.transport->read_some(&answer, 1);
  if (error || answer != 'S') co_return false;
  auto socket = std::move(server_.transport->socket());
  server_.transport.emplace(std::move(socket), host.tls);
  co_return !co_await server_.transport->handshake();
}

void Session::refuse(std::string_view state, std::string_view message) {
  add_error(refusal_, {.severity = "FATAL", .state = state, .message = message});
}

net::Task<void> Session::begin(Startup startup) {
  auto& options = shared_->options.relay;
  auto& observer = static_cast<RelayObserver&>(*this);
  const auto* holder = shared_->context.holder;
  if (holder == nullptr) {
    relay_.emplace(options, observer, std::move(startup));
    co_return;
  }
  held_claims_ = holder->present();
  std::string objection;
  const auto begun = take_begin(startup);
  if (const auto claims = held_claims_; claims && begun != to_string(claims->highest)) {
    objection = co_await holder->objection_to(loop_, client_->transport().descriptor(), claims, peer_);
    // Whoever was let in because its program is young enough says that its work is not.
    if (objection.empty() && begun) objection = objection_to_begin(*begun, claims->highest);
  }
  if (is_cut()) co_return;
  // It may have been lost meanwhile.
  if (!held_claims_ || held_claims_->is_over()) {
    refuse("57P03", holder->absence());
  } else if (!objection.empty()) {
    refuse_older_program(objection);
  } else {
    relay_.emplace(options, observer, std::move(startup), held_claims_->claims);
  }
}

// The token is the tenure's alone: what a driver says by itself as it connects again is of an earlier one.
void Session::refuse_older_program(std::string_view why) {
  const auto token = to_string(held_claims_->highest);
  add_error(refusal_, {.severity = "FATAL",
                       .state = "ZF009",
                       .message = why,
                       .detail = fmt::format(R"({{"verdict": "lost", "token": "{}"}})", token),
                       .hint = fmt::format(
                           "Start the program anew; or let it forget what it has read, and connect with "
                           "options='-c fenceguard.begin={}', which holds until this lease is lost.",
                           token)});
}

// Until nothing more is to be taken from the client.
net::Task<void> Session::read_client() {
  for (;;) {
    while (!is_cut() && !relay_->is_over() && !is_server_gone() &&
           (!relay_->takes_client() ||
            server_.outlet.sending.size() + relay_->to_server().size() > pause_bytes)) {
      look_at_client();
      co_await client_->wakeup().wait();
    }
    looks_.at_client = net::SteadyTime::max();
    if (is_cut() || relay_->is_over() || is_server_gone()) break;
    if (client_->buffer().empty()) {
      client_->buffer().shrink();
      const auto arrival = client_->filled(co_await client_->fill());
      if (arrival != net::Connection::Arrival::ready) {
        if (arrival == net::Connection::Arrival::late && !relay_->is_ready())
          relay_->end("08006", "canceling authentication due to timeout");
        is_client_gone_ = !relay_->is_over() && !is_server_gone();
        if (is_client_gone_) client_->set_deadline(shared_->context.limits.body_max);
        break;
      }
    }
    const auto bytes = client_->buffer().view();
    relay_safely(true, bytes);
    client_->buffer().consume(bytes.size());
  }
  // What it sent before it went is still done, as far as it would be without us.
  while (is_client_gone_ && !is_cut() && !relay_->is_over() && !is_server_gone() &&
         !relay_->has_relayed_all())
    co_await client_->wakeup().wait();
}

net::Task<void> Session::read_server() {
  const auto self = shared_from_this();
  try {
    while (!is_cut() && server_.transport->is_open() && !relay_->is_over()) {
      if (to_client_.sending.size() + relay_->to_client().size() > pause_bytes) {
        look_at_server();
        co_await server_.wakeup.wait();
        continue;
      }
      looks_.at_server = net::SteadyTime::max();
      looks_.is_server_due = false;
      if (server_.buffer.empty()) server_.buffer.shrink();
      server_.buffer.reserve(server_.buffer.empty() ? net::ReadBuffer::small : server_bytes_a_read);
      const auto [error, bytes] =
          co_await server_.transport->read_some(server_.buffer.room(), server_.buffer.room_bytes());
      if (error) break;
      server_.buffer.commit(bytes);
      relay_safely(false, server_.buffer.view());
      server_.buffer.consume(server_.buffer.size());
    }
  } catch (...) {
    cut();
  }
  server_.state = Server::State::gone;
  stop_reading_client();
  wake();
}

// While nothing is read from the server its end does not come through: what is sent to it brings that out.
void Session::look_at_server() {
  if (std::exchange(looks_.is_server_due, false)) {
    if (server_.transport->is_hung_up()) {
      if (client_->deadline() == net::SteadyTime::max()) client_->set_deadline(parting_max);
      return;
    }
    relay_->probe_server();
    flush();
  }
  if (looks_.at_server != net::SteadyTime::max() || client_->deadline() != net::SteadyTime::max()) return;
  looks_.at_server = std::chrono::steady_clock::now() + server_look_after;
  loop_.arm(looks_.at_server);
}

// While nothing is read from the client, its end does not come through. What it sent before is done, for as
// long as the server goes on with it.
void Session::look_at_client() {
  if (is_client_gone_ || looks_.at_client != net::SteadyTime::max()) return;
  is_client_gone_ = client_->transport().is_hung_up();
  if (is_client_gone_) return client_->set_deadline(shared_->context.limits.body_max);
  looks_.at_client = std::chrono::steady_clock::now() + client_look_after;
  loop_.arm(looks_.at_client);
}

void Session::stop_reading_client() noexcept {
  if (!to_client_.is_sending) return client_->cancel();
  try {
    if (client_->deadline() == net::SteadyTime::max()) client_->set_deadline(parting_max);
  } catch (...) {
    client_->cancel();
  }
}

// Out of memory in the middle: what is owed is not certain any more.
void Session::relay_safely(bool is_from_client, std::string_view bytes) noexcept {
  try {
    const bool was_ready = relay_->is_ready();
    if (is_from_client) {
      relay_->from_client(bytes);
    } else {
      relay_->from_server(bytes);
      if (is_client_gone_) client_->set_deadline(shared_->context.limits.body_max);
    }
    if (!was_ready && relay_->is_ready()) client_->clear_deadline();
    look_again();
  } catch (...) {
    cut();
  }
}

void Session::look_again() {
  if (is_draining_ && relay_ && relay_->is_idle())
    relay_->end("57P01", "terminating connection due to administrator command");
  const bool is_busy = relay_->is_ready() && !relay_->is_idle();
  if (is_busy != is_counted_) loop_.in_flight.fetch_add(is_busy ? 1 : -1, std::memory_order_relaxed);
  is_counted_ = is_busy;
  flush();
  if (relay_->is_over()) stop_reading_client();
  wake();
}

// Not within the call of a coroutine that is to go on.
void Session::wake() {
  asio::post(loop_.context(), [this, self = shared_from_this()] {
    client_->wakeup().wake();
    server_.wakeup.wake();
  });
}

void Session::flush() {
  if (!relay_ || is_cut()) return;
  flush(client_->transport(), relay_->to_client(), to_client_);
  if (!relay_->is_over()) flush(*server_.transport, relay_->to_server(), server_.outlet);
}

void Session::flush(net::Transport& transport, std::string& out, Outlet& outlet) {
  if (outlet.is_sending || out.empty() || !transport.is_open()) return;
  std::string_view head = out, body;
  const auto error = transport.write_now(head, body);
  if (error && error != asio::error::would_block) {
    if (&transport == &client_->transport()) return cut();
    // What the server still says is read.
    out.clear();
    return;
  }
  if (head.empty()) return free_memory(out);
  outlet.sending.assign(head);
  out.clear();
  outlet.is_sending = true;
  asio::co_spawn(loop_.context(), send_rest(transport, out, outlet), asio::detached);
}

net::Task<void> Session::send_rest(net::Transport& transport, std::string& out, Outlet& outlet) {
  const auto self = shared_from_this();
  while (!outlet.sending.empty() && !is_cut()) {
    const auto error = co_await transport.write_all(outlet.sending, {});
    if (error) {
      if (&transport == &client_->transport()) cut();
      out.clear();
    }
    outlet.sending.clear();
    std::swap(outlet.sending, out);
    wake();
  }
  free_memory(outlet.sending);
  outlet.is_sending = false;
  if (is_server_gone() || relay_->is_over()) stop_reading_client();
  wake();
}

bool Session::is_sent() const noexcept {
  const bool has_server = server_.transport->is_open() && !is_server_gone() && !relay_->is_over();
  const Relay& relay = *relay_;
  return !to_client_.is_sending && relay.to_client().empty() &&
         (!has_server || (!server_.outlet.is_sending && relay.to_server().empty()));
}

void Session::begin_drain() {
  is_draining_ = true;
  if (!relay_ || !relay_->is_ready()) return cut();
  look_again();
}

void Session::look_at_loan() {
  if (!held_claims_ || !held_claims_->is_over() || !relay_) return;
  relay_->lose_claims();
  look_again();
}

void Session::cut() {
  if (end_ == End::none) end_ = End::terminated;
  client_->cut();
  server_.transport->close();
  wake();
}

void Session::ruled(const char* operation, const Claim& claim, Verdict verdict, std::int64_t highest) {
  report_ruling(shared_->context, operation, claim, verdict, highest, peer_);
  if (held_claims_ && verdict != Verdict::admitted) held_claims_->refused();
}

void Session::failed(const char* operation, const Claim& claim, const Fault& fault) {
  report_fault(shared_->context, operation, claim, fault, peer_);
}

void Session::missing() {
  shared_->context.metrics.count_missing();
}

// The next connection begins with another one.
void Session::is_standby() {
  auto first = server_.host;
  shared_->first.compare_exchange_strong(first, (server_.host + 1) % shared_->options.hosts.size());
}

void Session::not_signed(const Claim& claim) {
  report_unsigned(shared_->context, "advance", claim, peer_);
}

}  // namespace fenceguard::pgwire
