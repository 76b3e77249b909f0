#include "server/http/session.hpp"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <utility>

#include "server/net/address.hpp"

namespace fenceguard::http {
namespace {

// What a connection keeps of its memory for answers.
constexpr std::size_t kept_out_bytes_max = 4 * 1024;
// What is made room for at first of a body that did not come with its head; it grows with what has really
// come, not with what was announced.
constexpr std::size_t first_piece_bytes = 8 * 1024;

constexpr Rejection no_answer{0, ""};

}  // namespace

std::shared_ptr<net::Session> Service::make_session(net::Loop& loop, net::Socket socket) {
  return std::make_shared<Session>(loop, std::move(socket), shared_from_this());
}

Session::Session(Loop& loop, Socket socket, std::shared_ptr<Service> service)
    : service_{std::move(service)},
      connection_{loop, Transport{std::move(socket), service_->tls}},
      body_{connection_, service_->limits, service_->streams != nullptr} {}

void Session::start() {
  try {
    connection_.loop().add(*this);
    peer_ = peer_host(connection_.transport().descriptor());
    goes_on_ = true;
    if (!fast_.enter()) spawn(false);
  } catch (...) {
    finish();
  }
}

void Session::spawn(bool owes_answer) noexcept {
  owes_answer_ = owes_answer;
  try {
    asio::co_spawn(connection_.loop().context(), run(), asio::detached);
  } catch (...) {
    finish();
  }
}

StreamHandler* Session::fast_handler() const noexcept {
  const bool is_ready = !service_->tls || has_shaken_hands_;
  const bool has_one = is_ready && service_->streams != nullptr && service_->streams->has_fast_path();
  return has_one ? service_->streams : nullptr;
}

Task<void> Session::run() {
  const auto self = shared_from_this();
  (void)fast_.let_go();
  bool is_fast = false;
  try {
    if (service_->tls && !has_shaken_hands_) goes_on_ = co_await shake_hands();
    if (owes_answer_) co_await pay_answer();
    while (goes_on_ && !is_fast) {
      is_fast = !has_head_ && fast_.enter();
      if (!is_fast) goes_on_ = co_await serve_request();
    }
    if (is_lingering_) co_await connection_.linger();
  } catch (...) {
    // Out of memory, most likely: this connection ends, the others go on.
    is_fast = false;
  }
  if (!is_fast) finish();
}

Task<void> Session::pay_answer() {
  owes_answer_ = false;
  const bool is_sent = co_await connection_.send_rest(out_, {}, service_->limits.write_max);
  end_answer(is_sent);
}

Task<bool> Session::shake_hands() {
  connection_.set_deadline(service_->limits.header_max);
  begin_waiting();
  const auto error = co_await connection_.transport().handshake();
  connection_.clear_deadline();
  has_shaken_hands_ = !error;
  co_return has_shaken_hands_;
}

void Session::begin_waiting() {
  if (!is_linked()) connection_.loop().add_waiting(*this);
}

void Session::stop_waiting() {
  if (is_linked()) unlink();
}

void Session::finish() {
  const auto self = fast_.let_go();
  stop_waiting();
  if (service_->tls && !connection_.is_cut()) connection_.transport().shutdown_send();
  connection_.transport().close();
  connection_.loop().remove(*this);
  service_->connections.fetch_sub(1);
  service_->counter.leave();
}

Task<std::optional<Rejection>> Session::read_head() {
  HeadScanner scanner;
  body_.expect_head();
  is_head_ = false;
  auto refused = co_await await_head(scanner);
  stop_waiting();
  if (refused) co_return refused;
  auto& buffer = connection_.buffer();
  RequestReader& reader = reader_.emplace(service_->limits.body_bytes_max);
  refused = reader.read_head(buffer.view().substr(scanner.skip(), scanner.end() - scanner.skip()));
  buffer.consume(scanner.end());
  is_head_ = reader.request().method == "HEAD";
  co_return refused;
}

Task<bool> Session::serve_request() {
  if (!std::exchange(has_head_, false)) {
    const auto refused = co_await read_head();
    if (refused && refused->status == 0) co_return false;
    if (refused) co_return co_await respond_refusal(*refused);
  }
  RequestReader& reader = *reader_;
  keeps_alive_ = reader.wants_keep_alive();
  is_http_1_0_ = reader.is_http_1_0();
  reader.request().local_socket = service_->is_local;
  reader.request().client = service_->is_local ? "unix" : peer_;
  body_.begin(reader);
  if (service_->streams) co_return co_await serve_stream();
  answer_ = preview(reader.request());
  if (!answer_) {
    if (!body_.take_whole(reader.request().body)) {
      const auto body_refusal = co_await read_body();
      if (body_refusal) co_return co_await respond_refusal(*body_refusal);
    }
    dispatch(std::move(reader.request()));
    reader_.reset();
    while (!answer_ && !connection_.is_cut()) co_await connection_.wakeup().wait();
    if (!answer_) co_return false;
  }
  if (answer_->feed) co_return co_await serve_feed();
  co_await respond(std::move(*answer_));
  co_return goes_on_;
}

Task<bool> Session::serve_stream() {
  auto& in_flight = connection_.loop().in_flight;
  auto& stream = stream_.emplace(*this);
  bool has_thrown = false;
  goes_on_ = false;
  in_flight.fetch_add(1, std::memory_order_relaxed);
  try {
    co_await service_->streams->serve(stream);
  } catch (...) {
    has_thrown = true;
  }
  // What a handler did not take is over, and not the next request's.
  (void)fast_.take_begun();
  in_flight.fetch_sub(1, std::memory_order_relaxed);
  if (connection_.is_watching()) co_await connection_.stop_watching();
  if (stream.state() == SessionStream::State::begun) connection_.transport().reset();
  if (stream.state() == SessionStream::State::none && !connection_.is_cut()) {
    const Rejection failure{500, "the request could not be answered"};
    co_await respond_refusal(has_thrown ? failure : body_.refusal().value_or(failure));
  }
  co_return goes_on_ && !has_thrown;
}

Task<std::optional<Rejection>> Session::await_head(HeadScanner& scanner) {
  const auto& limits = service_->limits;
  auto& buffer = connection_.buffer();
  if (buffer.empty()) {
    buffer.shrink();
    if (is_ending_ || connection_.loop().is_draining()) co_return no_answer;
    is_idle_ = true;
    begin_waiting();
    connection_.set_deadline(limits.idle_max);
    auto arrival = Arrival::ready;
    // A connection over TLS is large enough without a buffer that waits for its bytes.
    if (connection_.transport().is_tls()) {
      buffer.release();
      arrival = connection_.arrival_of(co_await connection_.transport().wait_bytes());
    }
    if (arrival == Arrival::ready) arrival = connection_.filled(co_await connection_.fill());
    is_idle_ = false;
    const bool is_missed = arrival == Arrival::ended && (is_ending_ || connection_.loop().is_draining()) &&
                           connection_.read_at_once();
    if (arrival != Arrival::ready && !is_missed) co_return no_answer;
  }
  auto state = scanner.scan(buffer.view());
  if (state == HeadScanner::State::incomplete) {
    begin_waiting();
    connection_.set_deadline(limits.header_max);
  }
  constexpr Rejection too_large{431, "the header block is larger than this server takes"};
  while (state == HeadScanner::State::incomplete) {
    if (is_ending_) co_return no_answer;
    if (buffer.size() >= limits.header_bytes_max) co_return too_large;
    const auto arrival = connection_.filled(co_await connection_.fill());
    if (arrival == Arrival::late) co_return Rejection{408, "the request took too long to arrive"};
    if (arrival == Arrival::ended) co_return no_answer;
    state = scanner.scan(buffer.view());
    if (state == HeadScanner::State::incomplete && connection_.is_late())
      co_return Rejection{408, "the request took too long to arrive"};
  }
  connection_.clear_deadline();
  if (state == HeadScanner::State::malformed) co_return Rejection{400, "the request is malformed"};
  if (scanner.end() - scanner.skip() > limits.header_bytes_max) co_return too_large;
  co_return std::nullopt;
}

Task<std::optional<Rejection>> Session::read_body() {
  auto& body = reader_->request().body;
  for (;;) {
    const auto piece = co_await body_.read(body, std::max(first_piece_bytes, body.size()));
    if (piece == Piece::end) co_return std::nullopt;
    if (piece != Piece::some) co_return body_.refusal();
  }
}

std::optional<Response> Session::preview(Request& request) noexcept {
  try {
    return service_->handler->preview(request);
  } catch (...) {
    return refusal_response({500, "the request could not be looked at"});
  }
}

void Session::dispatch(Request request) {
  ++number_;
  answer_.reset();
  is_waiting_ = is_dispatching_ = true;
  try {
    auto pending =
        std::make_shared<PendingRequest>(connection_.loop().shared_from_this(),
                                         std::static_pointer_cast<Session>(shared_from_this()), number_);
    pending_ = pending;
    std::shared_ptr<Caller> caller = pending;
    Reply reply = [pending = std::move(pending)](Response response) { pending->reply(std::move(response)); };
    service_->handler->handle(std::move(request), std::move(caller), std::move(reply));
  } catch (...) {
    take_failure(number_, "the request could not be answered");
  }
  is_dispatching_ = false;
}

void Session::take_answer(Response& response) {
  is_waiting_ = false;
  answer_ = std::move(response);
  connection_.wakeup().wake();
}

void Session::take_failure(std::uint64_t number, std::string_view why) {
  if (!is_waiting(number)) return;
  auto response = refusal_response({500, why});
  take_answer(response);
}

Response Session::refusal_response(Rejection refusal) noexcept {
  Response response;
  try {
    response = service_->refuse(refusal);
  } catch (...) {
    response.status = refusal.status;
  }
  response.close = true;
  return response;
}

Task<bool> Session::respond_refusal(Rejection refusal) {
  // What a handler that failed did not take is released before its client hears of it.
  (void)fast_.take_begun();
  co_await respond(refusal_response(refusal));
  co_return goes_on_;
}

Framing Session::frame(bool closes) {
  is_closing_ =
      closes || !body_.is_complete() || !keeps_alive_ || is_ending_ || connection_.loop().is_draining();
  out_.clear();
  return {is_head_, is_closing_, is_http_1_0_, http_date_now()};
}

Task<bool> Session::respond(Response response) {
  goes_on_ = false;
  if (connection_.is_watching()) co_await connection_.stop_watching();
  if (response.undelivered && connection_.is_peer_gone()) {
    call_safely(response.undelivered);
    co_return false;
  }
  const auto framing = frame(response.close);
  write_head(out_, response, framing);
  std::string_view body;
  if (sends_body(response, framing)) body = response.body;
  if (body.size() <= Transport::copied_bytes_max) {
    out_.append(body);
    body = {};
  }
  std::string_view head = out_;
  bool is_sent = connection_.send_now(head, body);
  if (is_sent && !(head.empty() && body.empty()))
    is_sent = co_await connection_.send_rest(head, body, service_->limits.write_max);
  end_answer(is_sent);
  if (!is_sent) call_safely(response.undelivered);
  co_return is_sent;
}

void Session::end_answer(bool is_sent) noexcept {
  if (out_.capacity() > kept_out_bytes_max) std::string{}.swap(out_);
  // A client that asked for the end itself sends no more; any other may still be sending, and a reset would
  // cost it the answer.
  is_lingering_ =
      is_sent && is_closing_ && (keeps_alive_ || !body_.is_complete() || !connection_.buffer().empty());
  goes_on_ = is_sent && !is_closing_;
}

void Session::watch(std::uint64_t number) {
  if (!is_waiting(number) || connection_.is_watching()) return;
  connection_.watch(shared_from_this(), service_->limits.header_bytes_max, [pending = pending_] {
    if (const auto present = pending.lock()) present->tell_gone();
  });
}

void Session::begin_plain(const PlainRequest& request) noexcept {
  is_head_ = request.method == "HEAD";
  is_http_1_0_ = false;
  keeps_alive_ = true;
  body_.expect_nothing();
}

void Session::keep_plain(const PlainRequest& request) {
  reader_.emplace(service_->limits.body_bytes_max).take_head(request);
  connection_.buffer().consume(request.bytes - request.body.size());
  has_head_ = true;
}

FastSession::Owner::Next Session::next_after_answer(bool is_sent) noexcept {
  end_answer(is_sent);
  if (goes_on_) return Next::request;
  return is_lingering_ ? Next::linger : Next::end;
}

void Session::expire(SteadyTime now) {
  connection_.expire(now);
  if (fast_.is_on() && connection_.is_late()) fast_.wake();
}

void Session::begin_drain() {
  if (fast_.is_on()) fast_.wake();
  if (is_idle_) connection_.cancel();
}

void Session::end_waiting() {
  stop_waiting();
  is_ending_ = true;
  if (fast_.is_on()) fast_.wake();
  connection_.cancel();
}

void Session::cut() {
  const bool was_waiting = std::exchange(is_waiting_, false);
  const bool is_begun = stream_ && stream_->state() == SessionStream::State::begun;
  // Where nothing but the end of the connection ends an answer, an orderly end would be a lie.
  if (is_begun) connection_.transport().reset();
  connection_.cut();
  const auto pending = pending_.lock();
  if (was_waiting && pending) pending->tell_gone();
  if (fast_.is_on()) fast_.wake();
  connection_.wakeup().wake();
}

}  // namespace fenceguard::http
