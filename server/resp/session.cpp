#include "server/resp/session.hpp"

#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "server/net/address.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

namespace asio = boost::asio;

// So much is read ahead of what the relay takes, and so much waits for the client before it takes no more.
constexpr std::size_t ahead_bytes_max = 64 * 1024;
constexpr std::size_t output_pause_bytes = 1024 * 1024;
constexpr std::size_t request_bytes_a_read = 16 * 1024;
constexpr std::size_t subscriber_bytes_max = 32 * 1024 * 1024;  // that wait for one; as Redis has it
constexpr std::chrono::milliseconds client_look_after{1000};    // whether it has gone, while it is not read
// As Redis has them.
constexpr RequestLimits limits_before_login{
    .bytes_max = 16 * 1024, .words_max = 10, .which = "unauthenticated"};

}  // namespace

Session::Session(net::Loop& loop, net::Socket socket, std::shared_ptr<Shared> shared,
                 std::shared_ptr<net::Service> service)
    : shared_{std::move(shared)},
      service_{std::move(service)},
      number_{shared_->next_number()},
      connection_{loop, net::Transport{std::move(socket), shared_->context.tls}},
      links_{*this,
             relay_,
             shared_->upstreams_of(loop),
             shared_->unsettled,
             number_,
             {.changed = [this] { schedule(); }, .failed = [this] { cut(); }}},
      reporter_{shared_->context, links_},
      relay_{RelayContext{shared_->options.relay, *this, links_, reporter_}},
      outbox_{connection_, [this](bool is_broken) { note_sent(is_broken); }} {}

void Session::start() {
  try {
    connection_.loop().add(*this);
    const auto client = net::peer_host(connection_.transport().descriptor());
    reporter_.begin(client == "unknown" ? "unix" : client);
    asio::co_spawn(connection_.loop().context(), run(), asio::detached);
  } catch (...) {
    finish();
  }
}

void Session::decline() {
  constexpr std::string_view text = "-ERR max number of clients reached\r\n";
  if (!shared_->context.tls)
    (void)::send(connection_.transport().descriptor(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  finish();
}

void Session::finish() {
  if (std::exchange(is_over_, true)) return;
  links_.close_all();
  if (shared_->context.tls && !connection_.is_cut()) connection_.transport().shutdown_send();
  connection_.transport().close();
  connection_.loop().in_flight.fetch_sub(static_cast<std::int64_t>(std::exchange(counted_, 0)));
  connection_.loop().remove(*this);
  service_->connections.fetch_sub(1);
  service_->counter.leave();
}

net::Task<void> Session::run() {
  const auto self = shared_from_this();
  try {
    bool goes_on = co_await begin();
    while (goes_on) {
      goes_on = co_await read();
      if (goes_on) pump();
    }
    // A client that has ended its side is still answered, where that comes; what waits for others ends with
    // it. It may write again on another connection meanwhile.
    links_.note_unsettled(connection_.buffer().view());
    if (!is_ending_) connection_.set_deadline(shared_->context.limits.body_max);
    while (!is_ending_ && !connection_.is_cut() && !connection_.is_late() &&
           (relay_.is_answering() || !outbox_.empty()))
      co_await connection_.wakeup().wait();
    // What was answered is sent, unless the client is gone, or takes nothing.
    if (is_ending_) connection_.set_deadline(shared_->context.limits.write_max);
    while (is_ending_ && !connection_.is_cut() && !outbox_.empty()) co_await connection_.wakeup().wait();
    if (is_ending_ && !connection_.is_cut()) co_await connection_.linger();
  } catch (...) {
    // Out of memory, most likely: this connection ends, the others go on.
  }
  finish();
}

net::Task<bool> Session::begin() {
  if (connection_.loop().is_draining()) co_return false;
  if (shared_->context.tls) {
    connection_.set_deadline(shared_->context.limits.header_max);
    const auto error = co_await connection_.transport().handshake();
    connection_.clear_deadline();
    if (error) co_return false;
  }
  if (shared_->context.holder == nullptr) co_return true;
  co_return co_await borrow_claims();
}

net::Task<bool> Session::borrow_claims() {
  const auto& holder = *shared_->context.holder;
  const auto claims = holder.present();
  reporter_.lend(claims);
  if (claims) {
    const auto objection = co_await holder.objection_to(
        connection_.loop(), connection_.transport().descriptor(), claims, reporter_.client());
    // It may have been lost meanwhile.
    if (!claims->is_over()) {
      if (objection.empty()) {
        relay_.hold(claims->claims);
      } else {
        relay_.hold_until_begun(claims->claims, objection);
      }
      co_return true;
    }
  }
  std::string text;
  add_error(text, "UNAVAILABLE " + holder.absence());
  answer(text);
  end();
  co_return false;
}

bool Session::is_full() noexcept {
  return !is_ending_ && !connection_.is_cut() && !takes_requests() &&
         connection_.buffer().size() >= ahead_bytes_max;
}

// While nothing is read from the client its end does not come through. False: it has gone, and what it sent
// last waits for others, or for a server that does not answer. By a timer and not by the connection's
// deadline, which would end what is being sent to a client that is only slow.
net::Task<bool> Session::wait_for_room() {
  const auto is_due = std::make_shared<bool>();
  for (auto left = shared_->context.limits.body_max; is_full();) {
    *is_due = false;
    net::Timer timer{connection_.loop().context()};
    timer.expires_after(client_look_after);
    timer.async_wait([this, is_due, self = shared_from_this()](const boost::system::error_code& error) {
      *is_due = !error;
      if (!error) connection_.wakeup().wake();
    });
    co_await connection_.wakeup().wait();
    const bool is_gone = *is_due && connection_.transport().is_hung_up();
    if (is_gone) left -= client_look_after;
    if (is_gone && (!relay_.is_answering() || left.count() <= 0)) co_return false;
  }
  co_return true;
}

// False: the end.
net::Task<bool> Session::read() {
  const bool has_room = !is_full() || co_await wait_for_room();
  if (!has_room || is_ending_ || connection_.is_cut()) co_return false;
  const auto idle = shared_->context.limits.idle_max;
  if (idle.count() > 0 && relay_.is_idle()) connection_.set_deadline(idle);
  auto& buffer = connection_.buffer();
  // Not elsewhere: what waits for bytes has a place for them in it.
  if (buffer.empty() && !fills_up_) buffer.shrink();
  const auto room = fills_up_ ? request_bytes_a_read : net::ReadBuffer::small;
  const auto received = co_await connection_.fill(room);
  connection_.clear_deadline();
  fills_up_ = std::get<1>(received) == buffer.room_bytes();
  co_return connection_.filled(received) == net::Connection::Arrival::ready && !is_ending_;
}

void Session::expire(net::SteadyTime now) {
  const bool is_due = connection_.deadline() <= now;
  connection_.expire(now);
  if (is_due && !is_over_) schedule();
}

void Session::begin_drain() {
  is_draining_ = true;
  if (relay_.may_end()) end();
}

void Session::look_at_loan() {
  if (const auto& claims = reporter_.lent(); claims && claims->is_over() && !is_over_)
    terminate_where_thrown([this] { relay_.lose_claims(); });
}

template <class Action>
void Session::terminate_where_thrown(const Action& action) noexcept {
  try {
    action();
  } catch (...) {
    cut();
  }
}

void Session::cut() {
  connection_.cut();
  connection_.wakeup().wake();
}

void Session::pump() {
  if (is_pumping_) return;
  is_pumping_ = true;
  take_requests();
  is_pumping_ = false;
  relay_.flush();
  count_in_flight();
}

bool Session::takes_requests() const noexcept {
  return !is_ending_ && !is_over_ && !connection_.is_cut() && !relay_.is_held() &&
         outbox_.bytes() < output_pause_bytes;
}

void Session::take_requests() {
  auto& buffer = connection_.buffer();
  std::size_t at = 0;
  while (takes_requests()) {
    const auto rest = buffer.view().substr(at);
    const auto& limits = relay_.is_let_in() ? shared_->options.requests : limits_before_login;
    const auto outcome = reader_.read(rest, limits);
    if (outcome == RequestReader::Outcome::part) break;
    if (outcome == RequestReader::Outcome::malformed) {
      relay_.break_off(reader_.error());
      break;
    }
    if (outcome == RequestReader::Outcome::whole) {
      std::string encoded;
      if (reader_.is_inline()) redis::encode(reader_.words(), encoded);
      if (!relay_.take(reader_.words(), reader_.is_inline() ? encoded : rest.substr(0, reader_.size())))
        break;
    }
    at += reader_.size();
  }
  buffer.consume(at);
}

void Session::count_in_flight() {
  if (is_over_) return;
  const auto pending = relay_.pending();
  if (pending == counted_) return;
  connection_.loop().in_flight.fetch_add(
      static_cast<std::int64_t>(pending) - static_cast<std::int64_t>(counted_), std::memory_order_relaxed);
  counted_ = pending;
}

void Session::schedule() {
  if (std::exchange(is_scheduled_, true)) return;
  asio::post(connection_.loop().context(),
             [this, self = shared_from_this()] { terminate_where_thrown([this] { look_again(); }); });
}

void Session::look_again() {
  is_scheduled_ = false;
  if (is_over_) return;
  flush();
  if (is_over_ || connection_.is_cut()) return connection_.wakeup().wake();
  if (!connection_.buffer().empty()) pump();
  count_in_flight();
  flush();
  if (is_draining_ && !is_ending_ && relay_.may_end()) end();
  connection_.wakeup().wake();
}

void Session::answer(std::string_view bytes) {
  if (is_over_ || connection_.is_cut()) return;
  const auto most = relay_.is_subscribed() ? subscriber_bytes_max : shared_->options.output_bytes_max;
  if (outbox_.bytes() + bytes.size() > most) return cut();
  outbox_.append(bytes);
  schedule();
}

void Session::end() {
  if (std::exchange(is_ending_, true)) return;
  // What is being sent is sent, where the client takes it in time.
  if (outbox_.is_sending()) {
    connection_.set_deadline(shared_->context.limits.write_max);
  } else {
    connection_.cancel();
  }
  schedule();
}

void Session::flush() {
  if (!outbox_.flush(shared_from_this())) cut();
}

void Session::note_sent(bool is_broken) {
  if (is_broken) cut();
  if (is_ending_) connection_.cancel();
  if (!is_over_) schedule();
}

}  // namespace fenceguard::resp
