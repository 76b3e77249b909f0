// What a session does on its connections to Redis.

#include <algorithm>
#include <iterator>

#include "server/resp/session.hpp"

namespace fenceguard::resp {
namespace {

// A server may refuse an argument that is larger (proto-max-bulk-len is at least this), and then ends the
// connection, for all who are on it.
constexpr std::size_t shared_request_bytes_max = 1024 * 1024;
constexpr std::chrono::milliseconds read_again_after{1'000};  // on a connection for reads that was not made

}  // namespace

std::shared_ptr<Link>& Session::owned(Channel channel) noexcept {
  return channel == Channel::own ? own_ : spare_;
}

std::shared_ptr<Link> Session::link_for(Channel channel, int slot) {
  if (channel == Channel::shared) {
    if (slot < 0) slot = last_slot_;
    last_slot_ = slot;
    return asked_ ? upstreams_->shared(bound_place_, *asked_) : upstreams_->shared(bound_place_, slot);
  }
  return owned(channel);
}

void Session::prepare(Channel channel, int slot, bool stays) {
  if (is_over_) return;
  auto& link = owned(channel);
  const bool is_elsewhere =
      link && !stays && is_cluster() && slot >= 0 && link->server() != upstreams_->endpoint_of(slot);
  if (is_elsewhere) link->close();
  if (!link || !link->is_open()) link = upstreams_->open_owned(bound_place_, slot, channel, self());
}

bool Session::may_share(std::size_t bytes) noexcept {
  // Told of what was lost it may be that the next comes after it.
  if (is_settling_ && awaited_ > 0) return false;
  // Replies of two connections would not come in the order of their requests.
  if (is_reading_ && awaited_ > 0) return false;
  is_reading_ = false;
  if (!held_.empty() && !is_sending_held_) return false;
  if (bytes <= shared_request_bytes_max || has_own_lane()) return true;
  if (awaited_ > 0) return false;
  bound_place_.lane = Upstreams::lanes + static_cast<std::size_t>(number_);
  return true;
}

// The client has gone: the claims under which writes are under way, or are still to be sent.
void Session::note_unsettled() noexcept {
  try {
    std::vector<UnsettledClaims::Key> keys;
    for (const auto& held : relay_.claims_under_way())
      keys.emplace_back(relay_.database(), held->claim.resource.name(), held->claim.token.value());
    if (keys.empty()) return;
    unsettled_.reserve(unsettled_.size() + keys.size());
    shared_->unsettled.add(keys);
    std::ranges::move(keys, std::back_inserter(unsettled_));
  } catch (const std::bad_alloc&) {
    // A later write of this client is not kept from overtaking it.
  }
}

// A write that is under way in one may take effect all the same, and is awaited.
void Session::close_links() {
  note_unsettled();
  for (const auto& [channel, link] : {std::pair{Channel::own, own_}, std::pair{Channel::spare, spare_}})
    if (link) relay_.awaits_judged_write(channel) ? link->fail("its client is gone") : link->close();
  leave_own_lane();
}

void Session::leave_own_lane() {
  if (has_own_lane()) upstreams_->drop(bound_place_.lane);
}

// Where slots move meanwhile they may be for several servers: one after the other then. So are those behind
// which a connection of this client's own is needed.
void Session::send_held() {
  if (is_settling_ && awaited_ > 0) return;
  is_settling_ = false;
  is_sending_held_ = true;
  const auto may_follow = [&] {
    return !is_cluster() && (has_own_lane() || held_.front().bytes <= shared_request_bytes_max);
  };
  while (!held_.empty() && (awaited_ == 0 || (!is_reading_ && may_follow()))) {
    const auto held = std::move(held_.front());
    held_.pop_front();
    held.send();
  }
  is_sending_held_ = false;
}

// send_to(link, is_asked) sends it.
template <class Request>
void Session::send_on(Channel channel, int slot, const Request& send_to) {
  const auto link = link_for(channel, slot);
  if (!link) return;
  const bool is_asked = channel == Channel::shared && asked_.has_value();
  if (is_asked) {
    ++skipped_;
    ++awaited_;
    link->send(self(), "*1\r\n$6\r\nASKING\r\n", 1, false);
    asked_.reset();
  }
  send_to(*link, is_asked);
}

void Session::send(Channel channel, int slot, std::string_view bytes, std::size_t replies, bool waits) {
  if (channel == Channel::shared && !may_share(bytes.size())) {
    held_.push_back({bytes.size(), [this, slot, text = std::string{bytes}, replies, waits] {
                       send(Channel::shared, slot, text, replies, waits);
                     }});
    return;
  }
  if (channel == Channel::shared) awaited_ += replies;
  send_on(channel, slot, [&](Link& link, bool /*is_asked*/) { link.send(self(), bytes, replies, waits); });
}

// As long as it sends nothing else, and nothing of it is awaited elsewhere.
void Session::send_read(int slot, std::string_view bytes) {
  const bool may_begin = awaited_ == 0 && !is_cluster() && !has_own_lane() &&
                         bytes.size() <= shared_request_bytes_max &&
                         std::chrono::steady_clock::now() >= reads_apart_from_;
  if (!held_.empty() || !((is_reading_ && awaited_ > 0) || may_begin))
    return send(Channel::shared, slot, bytes, 1, false);
  is_reading_ = true;
  auto place = bound_place_;
  place.lane = Upstreams::reading_lane;
  const auto link = upstreams_->shared(place, slot);
  ++awaited_;
  // All that is awaited there, or nothing of it.
  if (!link->is_ready() || !to_read_.empty()) to_read_.emplace_back(bytes);
  link->send(self(), bytes, 1, false);
}

// A user whose password was changed keeps the connections that there are.
bool Session::reads_again() {
  if (to_read_.empty()) return false;
  reads_apart_from_ = std::chrono::steady_clock::now() + read_again_after;
  read_again_.push_back({to_read_.front().size(), [this, text = std::move(to_read_.front())] {
                           send(Channel::shared, -1, text, 1, false);
                         }});
  to_read_.pop_front();
  // Ahead of what waits behind them.
  if (awaited_ == 0) held_.splice(held_.begin(), read_again_);
  send_held();
  return true;
}

void Session::send(Channel channel, int slot, const ScriptCall& call, bool with_text) {
  if (channel == Channel::shared && !may_share(call.rest.size())) {
    held_.push_back(
        {call.rest.size(), [this, slot, call, with_text] { send(Channel::shared, slot, call, with_text); }});
    return;
  }
  if (channel == Channel::shared) ++awaited_;
  send_on(channel, slot, [&](Link& link, bool is_asked) { link.send(self(), call, is_asked, with_text); });
}

void Session::redirect(int /*slot*/, std::string_view error) {
  // One that was not used is not for what follows.
  asked_.reset();
  const auto redirection = upstreams_->redirected(error);
  if (redirection && redirection->kind == redis::Redirection::Kind::ask) asked_ = redirection->to;
}

void Session::close(Channel channel) {
  auto& link = owned(channel);
  if (link) link->close();
  link = nullptr;
}

void Session::bind(const Identity& identity, int database) {
  place_.identity = identity;
  place_.database = database;
  const auto place = place_;
  upstreams_->bind(place, [weak = weak_from_this(), place](const Greeting& greeting) {
    const auto session = std::static_pointer_cast<Session>(weak.lock());
    if (!session || session->is_over_) return;
    session->cut_where_thrown([&] {
      if (session->relay_.bound(greeting.error, greeting.needs_password)) {
        // Not one for each user and database that it comes to.
        session->leave_own_lane();
        session->bound_place_ = place;
      }
      session->schedule();
    });
  });
}

void Session::learn_command(std::string_view name) {
  upstreams_->learn_command(bound_place_, std::string{name}, [weak = weak_from_this()] {
    const auto session = std::static_pointer_cast<Session>(weak.lock());
    if (!session || session->is_over_) return;
    session->cut_where_thrown([&] {
      session->relay_.learned();
      session->schedule();
    });
  });
}

void Session::sleep(int ms) {
  const auto timer = std::make_shared<net::Timer>(connection_.loop().context());
  timer->expires_after(std::chrono::milliseconds{ms});
  timer->async_wait([weak = weak_from_this(), timer](const boost::system::error_code& /*error*/) {
    const auto session = std::static_pointer_cast<Session>(weak.lock());
    if (!session || session->is_over_) return;
    session->cut_where_thrown([&] {
      session->relay_.woken();
      session->schedule();
    });
  });
}

// False: it is that of an ASKING.
bool Session::ends_awaited() noexcept {
  --awaited_;
  if (skipped_ == 0) return true;
  --skipped_;
  return false;
}

void Session::link_replied(Channel channel, std::string_view reply, net::SteadyTime sent_at) {
  if (is_over_ || (channel == Channel::shared && !ends_awaited())) return;
  sent_at_ = sent_at;
  if (channel == Channel::shared && !to_read_.empty()) to_read_.pop_front();
  cut_where_thrown([&] {
    relay_.replied(channel, reply);
    send_held();
    schedule();
  });
}

void Session::link_lost(Channel channel, bool was_sent, std::string_view why) {
  if (is_over_ || (channel == Channel::shared && !ends_awaited())) return;
  if (channel != Channel::shared) owned(channel) = nullptr;
  cut_where_thrown([&] {
    if (channel == Channel::shared && !was_sent && reads_again()) return;
    to_read_.clear();
    relay_.lost(channel, was_sent, why);
    send_held();
    schedule();
  });
}

}  // namespace fenceguard::resp
