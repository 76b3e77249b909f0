#include "server/postgres/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "server/data/report.hpp"
#include "server/net/address.hpp"
#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire {
namespace {

namespace asio = boost::asio;

constexpr std::size_t pause_bytes = 256 * 1024;  // that wait for one side before no more is read for it
constexpr std::size_t server_bytes_a_read = 16 * 1024;
constexpr std::size_t kept_bytes_max = 4 * 1024;
constexpr std::chrono::seconds login_max{60};  // as PostgreSQL's authentication_timeout
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
    : loop_{loop},
      shared_{std::move(shared)},
      service_{std::move(service)},
      server_{std::in_place, net::Socket{loop.context()}} {
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
  if (std::exchange(is_over_, true)) return;
  if (client_->transport().is_tls() && !client_->is_cut()) client_->transport().shutdown_send();
  client_->transport().close();
  server_->close();
  if (std::exchange(is_counted_, false)) loop_.in_flight.fetch_sub(1);
  loop_.remove(*this);
  service_->connections.fetch_sub(1);
  service_->counter.leave();
}

net::SteadyTime Session::deadline() const noexcept {
  return std::min({client_->deadline(), looks_at_server_, looks_at_client_});
}

// One deadline for whatever is waited for: before the client is let in that may be the server.
void Session::expire(net::SteadyTime now) {
  if (looks_at_server_ <= now) {
    looks_at_server_ = net::SteadyTime::max();
    is_look_due_ = true;
    wake();
  }
  if (looks_at_client_ <= now) {
    looks_at_client_ = net::SteadyTime::max();
    wake();
  }
  const bool is_due = client_->deadline() <= now;
  client_->expire(now);
  if (!is_due) return;
  if (is_client_gone_) return cut();
  if (!is_reading_server_) server_->cancel();
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
        is_reading_server_ = true;
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
    while (!is_cut_ && relay_ && !is_sent()) co_await client_->wakeup().wait();
    server_->close();
    server_wakeup_.wake();
    if (!is_client_gone_ && !is_cut_) co_await client_->linger();
  } catch (...) {
    // Out of memory, most likely: this connection ends, the others go on.
  }
  cut();
  try {
    while (is_reading_server_ || to_client_.is_sending || to_server_.is_sending)
      co_await client_->wakeup().wait();
  } catch (...) {
    // As above.
  }
  finish();
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
  if (is_cut_) co_return;
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
    while (
        !is_cut_ && !relay_->is_over() && !is_server_gone_ &&
        (!relay_->takes_client() || to_server_.sending.size() + relay_->to_server().size() > pause_bytes)) {
      look_at_client();
      co_await client_->wakeup().wait();
    }
    looks_at_client_ = net::SteadyTime::max();
    if (is_cut_ || relay_->is_over() || is_server_gone_) break;
    if (client_->buffer().empty()) {
      client_->buffer().shrink();
      const auto arrival = client_->filled(co_await client_->fill());
      if (arrival != net::Connection::Arrival::ready) {
        if (arrival == net::Connection::Arrival::late && !relay_->is_ready())
          relay_->end("08006", "canceling authentication due to timeout");
        is_client_gone_ = !relay_->is_over() && !is_server_gone_;
        if (is_client_gone_) client_->set_deadline(shared_->context.limits.body_max);
        break;
      }
    }
    const auto bytes = client_->buffer().view();
    relay_safely(true, bytes);
    client_->buffer().consume(bytes.size());
  }
  // What it sent before it went is still done, as far as it would be without us.
  while (is_client_gone_ && !is_cut_ && !relay_->is_over() && !is_server_gone_ && !relay_->has_relayed_all())
    co_await client_->wakeup().wait();
}

net::Task<void> Session::read_server() {
  const auto self = shared_from_this();
  try {
    while (!is_cut_ && server_->is_open() && !relay_->is_over()) {
      if (to_client_.sending.size() + relay_->to_client().size() > pause_bytes) {
        look_at_server();
        co_await server_wakeup_.wait();
        continue;
      }
      looks_at_server_ = net::SteadyTime::max();
      is_look_due_ = false;
      if (server_buffer_.empty()) server_buffer_.shrink();
      server_buffer_.reserve(server_buffer_.empty() ? net::ReadBuffer::small : server_bytes_a_read);
      const auto [error, bytes] =
          co_await server_->read_some(server_buffer_.room(), server_buffer_.room_bytes());
      if (error) break;
      server_buffer_.commit(bytes);
      relay_safely(false, server_buffer_.view());
      server_buffer_.consume(server_buffer_.size());
    }
  } catch (...) {
    cut();
  }
  is_server_gone_ = true;
  is_reading_server_ = false;
  stop_reading_client();
  wake();
}

// While nothing is read from the server its end does not come through: what is sent to it brings that out.
void Session::look_at_server() {
  if (std::exchange(is_look_due_, false)) {
    if (server_->is_hung_up()) {
      if (client_->deadline() == net::SteadyTime::max()) client_->set_deadline(parting_max);
      return;
    }
    relay_->probe_server();
    flush();
  }
  if (looks_at_server_ != net::SteadyTime::max() || client_->deadline() != net::SteadyTime::max()) return;
  looks_at_server_ = std::chrono::steady_clock::now() + server_look_after;
  loop_.arm(looks_at_server_);
}

// While nothing is read from the client, its end does not come through. What it sent before is done, for as
// long as the server goes on with it.
void Session::look_at_client() {
  if (is_client_gone_ || looks_at_client_ != net::SteadyTime::max()) return;
  is_client_gone_ = client_->transport().is_hung_up();
  if (is_client_gone_) return client_->set_deadline(shared_->context.limits.body_max);
  looks_at_client_ = std::chrono::steady_clock::now() + client_look_after;
  loop_.arm(looks_at_client_);
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
    server_wakeup_.wake();
  });
}

void Session::flush() {
  if (!relay_ || is_cut_) return;
  flush(client_->transport(), relay_->to_client(), to_client_);
  if (!relay_->is_over()) flush(*server_, relay_->to_server(), to_server_);
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
  while (!outlet.sending.empty() && !is_cut_) {
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
  if (is_server_gone_ || relay_->is_over()) stop_reading_client();
  wake();
}

bool Session::is_sent() const noexcept {
  const bool has_server = server_->is_open() && !is_server_gone_ && !relay_->is_over();
  const Relay& relay = *relay_;
  return !to_client_.is_sending && relay.to_client().empty() &&
         (!has_server || (!to_server_.is_sending && relay.to_server().empty()));
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
  is_cut_ = true;
  client_->cut();
  server_->close();
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
  auto first = host_;
  shared_->first.compare_exchange_strong(first, (host_ + 1) % shared_->options.hosts.size());
}

void Session::not_signed(const Claim& claim) {
  report_unsigned(shared_->context, "advance", claim, peer_);
}

}  // namespace fenceguard::pgwire
