#include "server/resp/upstream/link.hpp"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <new>
#include <utility>

#include "server/net/client/connect.hpp"

namespace fenceguard::resp {
namespace {

namespace asio = boost::asio;

constexpr std::size_t reply_bytes_a_read = 16 * 1024;
constexpr std::size_t kept_request_bytes_max = 64 * 1024;
constexpr std::size_t demotion_bytes_max = 4 * 1024;  // of a reply, in which it is looked for

// Where there is no memory for it something that needs none.
void assign(std::string& text, std::string_view why) noexcept {
  try {
    text = why;
  } catch (const std::bad_alloc&) {
    text = "no memory";
  }
}

// A write was refused because the server is a replica: the only one, or one of those that a script has done.
bool is_of_replica(std::string_view reply) {
  constexpr std::string_view error = "-READONLY ";
  if (reply.starts_with('-')) return reply.starts_with(error);
  if (!reply.starts_with('*') || reply.substr(0, demotion_bytes_max).find(error) == reply.npos) return false;
  // Not where it is part of a value.
  const auto whole = take_value(reply);
  auto rest = whole ? whole->inside : std::string_view{};
  for (auto element = take_value(rest); element; element = take_value(rest))
    if (element->bytes.starts_with(error)) return true;
  return false;
}

}  // namespace

Link::Link(net::Loop& loop, redis::Address address, Channel channel, LinkUserPtr owner)
    : loop_{loop},
      address_{std::move(address)},
      channel_{channel},
      owner_{owner},
      transport_{net::Socket{loop.context()}} {}

Link::~Link() = default;

void Link::open(std::function<void(const Greeting&)> greeted) {
  greeted_ = std::move(greeted);
  try {
    asio::co_spawn(loop_.context(), run(), asio::detached);
  } catch (...) {
    close();
    throw;
  }
}

void Link::decline(std::string why, std::function<void(const Greeting&)> greeted) {
  greeted_ = std::move(greeted);
  try {
    asio::post(loop_.context(),
               [self = shared_from_this(), why = std::move(why)] { self->end_greeting(std::move(why)); });
  } catch (...) {
    close();
    throw;
  }
}

net::Task<void> Link::run() {
  const auto self = shared_from_this();
  try {
    // Nothing of it comes about within open().
    co_await loop_.yield();
    if (state_ == State::closed) co_return;
    auto error = co_await connect();
    if (state_ == State::closed) co_return;
    if (error.empty()) {
      set_deadline(std::chrono::steady_clock::now() + address_.timeout);
      Greeter greeter{transport_, buffer_, reader_};
      error = co_await greeter.greet(address_, takes_replica, greeting_);
    }
    if (state_ == State::closed) co_return;
    if (!error.empty()) co_return end_greeting(std::move(error));
    state_ = State::ready;
    set_deadline(net::SteadyTime::max());
    end_greeting({});
    if (state_ == State::closed) co_return;
    schedule_flush();
    co_await receive_all();
  } catch (...) {
    fail("there is no memory for what Redis answered");
  }
}

net::Task<net::Transport::Error> Link::connect_to(const net::Endpoint& endpoint) {
  auto& socket = transport_.socket();
  net::Transport::Error error;
  if (socket.is_open()) socket.close(error);
  error = net::open_socket(socket, endpoint, {.resets = true});
  if (error) co_return error;
  socket.non_blocking(true, error);
  const auto [outcome] = co_await socket.async_connect(endpoint, net::as_result);
  co_return outcome;
}

net::Task<std::string> Link::connect() {
  set_deadline(std::chrono::steady_clock::now() + address_.connect_timeout);
  const auto& server = address_.endpoints.front();
  const net::Address address{server.host, static_cast<std::uint16_t>(server.port), server.socket};
  const auto found = co_await net::resolve(loop_, address, address_.connect_timeout);
  auto reason = found.error;
  for (const auto& endpoint : found.endpoints) {
    if (state_ == State::closed) break;
    const auto error = co_await connect_to(endpoint);
    if (!error) co_return std::string{};
    reason = error.message();
  }
  co_return fmt::format("Redis at {} cannot be reached: {}", to_string(server), reason);
}

void Link::end_greeting(std::string error) {
  greeting_.error = std::move(error);
  const auto greeted = std::exchange(greeted_, nullptr);
  const auto self = shared_from_this();
  if (greeted) greeted(greeting_);
  if (!greeting_.error.empty()) fail(greeting_.error);
}

net::Task<void> Link::receive_all() {
  for (;;) {
    std::size_t used = 0;
    for (auto view = buffer_.view(); !view.empty() && state_ == State::ready;) {
      const auto outcome = reader_.read(view);
      if (outcome == ReplyReader::Outcome::part) break;
      if (outcome == ReplyReader::Outcome::malformed) co_return fail("Redis answered with what is no reply");
      deliver(view.substr(0, reader_.size()));
      used += reader_.size();
      view.remove_prefix(reader_.size());
    }
    if (state_ != State::ready) co_return;
    buffer_.consume(used);
    // Also by a part of a reply: a server that is sending one is well.
    renew_deadline();
    if (used > 0 && buffer_.empty()) buffer_.shrink();
    buffer_.reserve(channel_ == Channel::shared ? reply_bytes_a_read : net::ReadBuffer::small);
    const auto [error, bytes] = co_await transport_.read_some(buffer_.room(), buffer_.room_bytes());
    if (state_ != State::ready) co_return;
    if (error)
      co_return fail(fmt::format("the connection to Redis at {} was lost: {}",
                                 to_string(address_.endpoints.front()), error.message()));
    buffer_.commit(bytes);
  }
}

void Link::deliver(std::string_view reply) {
  if (sent_.empty()) {
    // A message to a subscriber.
    if (const auto owner = owner_.lock()) owner->link_replied(channel_, reply, {});
    return;
  }
  auto& front = sent_.front();
  const auto user = front.user;
  const auto at = front.at;
  if (--front.replies == 0) sent_.pop_front();
  is_demoted_ = is_demoted_ || (!greeting_.is_cluster && is_of_replica(reply));
  if (user) user->link_replied(channel_, reply, at);
  // The next one finds the master, or says that there is none. One of a client's own first ends what it does.
  if (is_demoted_ && (channel_ == Channel::shared || sent_.empty()))
    fail(fmt::format("{} has become a replica; connect to the master", to_string(server())));
}

void Link::queue(const LinkUserPtr& user, std::size_t replies, bool waits) {
  const auto now = std::chrono::steady_clock::now();
  if (sent_.empty() && state_ == State::ready) {
    progress_at_ = now;
    if (!waits) set_deadline(now + address_.timeout);
  }
  sent_.push_back({user, replies, queued_, now, waits});
}

void Link::send(const LinkUserPtr& user, std::string_view bytes, std::size_t replies, bool waits) {
  if (state_ == State::closed) return;
  fail_where_thrown([&] {
    queue(user, replies, waits);
    out_.append(bytes);
    queued_ += bytes.size();
    schedule_flush();
  });
}

// Out of memory in the middle: which reply is whose would not be certain any more.
template <class Action>
void Link::fail_where_thrown(const Action& action) {
  try {
    action();
  } catch (...) {
    fail("there is no memory to send to Redis");
    throw;
  }
}

void Link::send(const LinkUserPtr& user, const ScriptCall& call, bool is_asked, bool with_text) {
  if (state_ == State::closed) return;
  fail_where_thrown([&] { send_script(user, call, is_asked, with_text); });
}

void Link::send_script(const LinkUserPtr& user, const ScriptCall& call, bool is_asked, bool with_text) {
  queue(user, 1, false);
  const auto before = out_.size();
  const bool is_known = !scripts_.insert(call.script).second && !with_text;
  add_array(out_, 2 + call.words);
  add_bulk(out_, is_known ? "EVALSHA" : "EVAL");
  add_bulk(out_, is_known ? call.script->hash() : call.script->text());
  const auto rest_at = out_.size();
  out_.append(call.rest);
  if (is_asked && call.asked_at != std::string::npos) out_[rest_at + call.asked_at] = '1';
  queued_ += out_.size() - before;
  schedule_flush();
}

void Link::schedule_flush() {
  if (state_ != State::ready || is_flush_scheduled_ || is_sending_ || out_.empty()) return;
  is_flush_scheduled_ = true;
  asio::post(loop_.context(), [self = shared_from_this()] { self->flush(); });
}

void Link::flush() {
  is_flush_scheduled_ = false;
  if (state_ != State::ready || is_sending_ || out_.empty()) return;
  std::string_view head = out_, body;
  const auto error = transport_.write_now(head, body);
  written_ += out_.size() - head.size();
  if (error && error != asio::error::would_block)
    return fail(fmt::format("the connection to Redis was lost: {}", error.message()));
  if (head.empty()) {
    out_.clear();
    if (out_.capacity() > kept_request_bytes_max) out_.shrink_to_fit();
    return;
  }
  sending_.assign(head);
  out_.clear();
  is_sending_ = true;
  // How much of it was sent is not known while it is: all of it may have been.
  written_ += sending_.size();
  try {
    asio::co_spawn(loop_.context(), send_rest(), asio::detached);
  } catch (...) {
    fail("there is no memory to send to Redis");
  }
}

net::Task<void> Link::send_rest() {
  const auto self = shared_from_this();
  while (!sending_.empty()) {
    const auto error = co_await transport_.write_all(sending_, {});
    if (state_ == State::closed) co_return;
    if (error) co_return fail(fmt::format("the connection to Redis was lost: {}", error.message()));
    sending_.clear();
    std::swap(sending_, out_);
    written_ += sending_.size();
  }
  is_sending_ = false;
  free_memory(sending_);
}

void Link::renew_deadline() {
  progress_at_ = std::chrono::steady_clock::now();
  const bool is_timed = !sent_.empty() && !sent_.front().waits;
  set_deadline(is_timed ? progress_at_ + address_.timeout : net::SteadyTime::max());
}

std::optional<net::SteadyTime> Link::idle_since() const noexcept {
  if (state_ != State::ready || !sent_.empty() || !out_.empty() || is_sending_) return std::nullopt;
  return progress_at_;
}

void Link::set_deadline(net::SteadyTime deadline) {
  deadline_ = deadline;
  if (arm && deadline != net::SteadyTime::max()) arm(deadline);
}

void Link::expire(net::SteadyTime now) {
  if (deadline_ > now) return;
  if (is_settling()) {
    try {
      lost_why_.append("; the settle time has passed since");
      if (!settles_why_.empty()) lost_why_.append(" (").append(settles_why_).append(")");
    } catch (const std::bad_alloc&) {
      // They are told without.
    }
    return tell_settled();
  }
  if (state_ == State::closed) return;
  const auto where = to_string(address_.endpoints.front());
  const bool is_greeted = state_ == State::ready;
  const auto why = fmt::format("Redis at {} did not answer in time", where);
  if (is_greeted) return fail(why);
  end_greeting(why);
}

void Link::fail(std::string_view why) noexcept {
  if (state_ == State::closed) return;
  const auto self = shared_from_this();
  assign(lost_why_, why);
  state_ = State::closed;
  deadline_ = net::SteadyTime::max();
  transport_.reset();
  transport_.close();
  if (settle && mark_settling()) begin_settling();
  tell_lost(false);
  try {
    if (const auto greeted = std::exchange(greeted_, nullptr)) {
      assign(greeting_.error, lost_why_);
      greeted(greeting_);
    }
  } catch (...) {
    // Those that settle are told all the same.
  }
}

// A user is told of what it sent in its order: from the first that may take effect all of it waits, and of an
// owned link all there is, because its owner is told once.
bool Link::mark_settling() noexcept {
  bool is_settling = false;
  for (const auto& sent : sent_) {
    if (!sent.user || sent.begin >= written_ || sent.user->settles_on_ == this) continue;
    if (!sent.user->awaits_judged_write(channel_)) continue;
    sent.user->settles_on_ = this;
    is_settling = true;
  }
  for (auto& sent : sent_)
    sent.settles =
        sent.user && (sent.user->settles_on_ == this || (is_settling && channel_ != Channel::shared));
  for (const auto& sent : sent_)
    if (sent.settles && std::exchange(sent.user->settles_on_, nullptr) == this)
      sent.user->link_settling(channel_);
  return is_settling;
}

void Link::begin_settling() noexcept {
  try {
    settle();
  } catch (...) {
    // No memory to have its server end it: the settle time is waited for.
  }
}

void Link::settle_until(net::SteadyTime deadline) noexcept {
  settling_ = shared_from_this();
  set_deadline(deadline);
}

void Link::tell_settled() noexcept {
  const auto self = std::exchange(settling_, nullptr);
  deadline_ = net::SteadyTime::max();
  if (self) tell_lost(true);
}

void Link::forget() noexcept {
  close();
  deadline_ = net::SteadyTime::max();
  const auto self = std::exchange(settling_, nullptr);
  if (self) sent_.clear();
}

// Nothing is added to what was sent on a link that is closed.
void Link::tell_lost(bool settled) noexcept {
  const auto tell = [&](LinkUser& user, bool was_sent) noexcept {
    try {
      user.link_lost(channel_, was_sent, lost_why_);
    } catch (...) {
      // The others are told all the same.
    }
  };
  const auto is_told = [settled](const Sent& sent) { return sent.settles == settled; };
  if (channel_ == Channel::shared) {
    for (std::size_t place = 0; place < sent_.size(); ++place) {
      const auto& sent = sent_[place];
      if (!is_told(sent)) continue;
      const auto user = sent.user;
      const bool was_sent = sent.begin < written_;
      for (auto replies = sent.replies; replies > 0; --replies) tell(*user, was_sent);
    }
  } else if (const auto owner = owner_.lock(); owner && (settled || !is_settling())) {
    tell(*owner, !sent_.empty() && sent_.back().begin < written_);
  }
  std::erase_if(sent_, is_told);
}

void Link::close() noexcept {
  if (state_ == State::closed) return;
  state_ = State::closed;
  deadline_ = net::SteadyTime::max();
  greeted_ = nullptr;
  arm = nullptr;
  settle = nullptr;
  sent_.clear();
  transport_.reset();
  transport_.close();
}

}  // namespace fenceguard::resp
