#include "server/resp/upstream/shared_requests.hpp"

#include <utility>

namespace fenceguard::resp {
namespace {

// A server may refuse an argument that is larger (proto-max-bulk-len is at least this), and then ends the
// connection, for all who are on it.
constexpr std::size_t request_bytes_max = 1024 * 1024;
constexpr std::chrono::milliseconds read_again_after{1'000};  // on a connection for reads that was not made

}  // namespace

SharedRequests::SharedRequests(std::shared_ptr<Upstreams> upstreams, std::int64_t number)
    : upstreams_{std::move(upstreams)}, number_{number} {}

void SharedRequests::move_to(const Upstreams::Place& place) {
  // Not one for each user and database that it comes to.
  leave_own_lane();
  place_ = place;
}

void SharedRequests::leave_own_lane() {
  if (has_own_lane()) upstreams_->drop(place_.lane);
}

bool SharedRequests::may_send(std::size_t bytes) noexcept {
  // Told of what was lost it may be that the next comes after it.
  if (is_settling_ && awaited_ > 0) return false;
  // Replies of two connections would not come in the order of their requests.
  if (is_reading_ && awaited_ > 0) return false;
  is_reading_ = false;
  if (!kept_.empty() && !is_sending_kept_) return false;
  if (bytes <= request_bytes_max || has_own_lane()) return true;
  if (awaited_ > 0) return false;
  place_.lane = Upstreams::lanes + static_cast<std::size_t>(number_);
  return true;
}

bool SharedRequests::begin_request(const LinkUserPtr& user, int slot, std::shared_ptr<Link>& link) {
  last_slot_ = slot < 0 ? last_slot_ : slot;
  const auto asked = std::exchange(asked_, std::nullopt);
  link = asked ? upstreams_->shared(place_, *asked) : upstreams_->shared(place_, last_slot_);
  if (!asked) return false;
  ++skipped_;
  ++awaited_;
  link->send(user, "*1\r\n$6\r\nASKING\r\n", 1, false);
  return true;
}

void SharedRequests::send(const LinkUserPtr& user, int slot, std::string_view bytes, std::size_t replies) {
  if (!may_send(bytes.size())) {
    kept_.push_back({bytes.size(), [this, slot, text = std::string{bytes}, replies](const auto& later) {
                       send(later, slot, text, replies);
                     }});
    return;
  }
  awaited_ += replies;
  std::shared_ptr<Link> link;
  (void)begin_request(user, slot, link);
  link->send(user, bytes, replies, false);
}

void SharedRequests::send(const LinkUserPtr& user, int slot, const ScriptCall& call, bool with_text) {
  if (!may_send(call.rest.size())) {
    kept_.push_back({call.rest.size(), [this, slot, call, with_text](const auto& later) {
                       send(later, slot, call, with_text);
                     }});
    return;
  }
  ++awaited_;
  std::shared_ptr<Link> link;
  const bool is_asked = begin_request(user, slot, link);
  link->send(user, call, is_asked, with_text);
}

// As long as it sends nothing else, and nothing of it is awaited elsewhere.
void SharedRequests::send_read(const LinkUserPtr& user, int slot, std::string_view bytes) {
  const bool may_begin = awaited_ == 0 && !upstreams_->is_cluster() && !has_own_lane() &&
                         bytes.size() <= request_bytes_max &&
                         std::chrono::steady_clock::now() >= reads_apart_from_;
  if (!kept_.empty() || !((is_reading_ && awaited_ > 0) || may_begin)) return send(user, slot, bytes, 1);
  is_reading_ = true;
  auto place = place_;
  place.lane = Upstreams::reading_lane;
  const auto link = upstreams_->shared(place, slot);
  ++awaited_;
  // All that is awaited there, or nothing of it.
  if (!link->is_ready() || !to_read_.empty()) to_read_.emplace_back(bytes);
  link->send(user, bytes, 1, false);
}

// A user whose password was changed keeps the connections that there are.
bool SharedRequests::send_read_elsewhere(const LinkUserPtr& user, bool was_sent) {
  if (was_sent || to_read_.empty()) {
    to_read_.clear();
    return false;
  }
  reads_apart_from_ = std::chrono::steady_clock::now() + read_again_after;
  read_again_.push_back({to_read_.front().size(), [this, text = std::move(to_read_.front())](
                                                      const auto& later) { send(later, -1, text, 1); }});
  to_read_.pop_front();
  // Ahead of what waits behind them.
  if (awaited_ == 0) kept_.splice(kept_.begin(), read_again_);
  send_kept(user);
  return true;
}

// Where slots move meanwhile they may be for several servers: one after the other then. So are those behind
// which a connection of this client's own is needed.
void SharedRequests::send_kept(const LinkUserPtr& user) {
  if (is_settling_ && awaited_ > 0) return;
  is_settling_ = false;
  is_sending_kept_ = true;
  const auto may_follow = [&] {
    return !upstreams_->is_cluster() && (has_own_lane() || kept_.front().bytes <= request_bytes_max);
  };
  while (!kept_.empty() && (awaited_ == 0 || (!is_reading_ && may_follow()))) {
    const auto kept = std::move(kept_.front());
    kept_.pop_front();
    kept.send(user);
  }
  is_sending_kept_ = false;
}

void SharedRequests::redirect(std::string_view error) {
  // One that was not used is not for what follows.
  asked_.reset();
  const auto redirection = upstreams_->redirected(error);
  if (redirection && redirection->kind == redis::Redirection::Kind::ask) asked_ = redirection->to;
}

bool SharedRequests::end_awaited() noexcept {
  --awaited_;
  if (skipped_ == 0) return true;
  --skipped_;
  return false;
}

}  // namespace fenceguard::resp
