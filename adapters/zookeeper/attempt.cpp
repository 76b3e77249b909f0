#include "adapters/zookeeper/attempt.hpp"

#include <algorithm>

#include "guard/error.hpp"

namespace fenceguard::zookeeper {
namespace {

// Times that it begins anew because its node was removed, or is not known to be there.
constexpr int attempts = 20;

}  // namespace

void Bell::ring() {
  const std::scoped_lock lock{mutex_};
  has_rung_ = true;
  changed_.notify_all();
}

bool Bell::wait(const std::stop_token& stop, BootClock::time_point until) {
  // Short, because the clock of a condition variable stands still while the machine is suspended.
  static constexpr std::chrono::nanoseconds look_again = std::chrono::seconds{1};
  std::unique_lock lock{mutex_};
  while (!has_rung_ && !stop.stop_requested()) {
    const auto now = BootClock::now();
    if (now >= until) return false;
    changed_.wait_for(lock, stop, std::min(look_again, until - now), [this] { return has_rung_; });
  }
  return std::exchange(has_rung_, false);
}

Attempt::Attempt(Parts parts, const Resource& resource, const Holder& holder, const AcquireOptions& options)
    : parts_{parts},
      resource_{resource},
      holder_{holder},
      ttl_{options.ttl},
      stop_{options.stop},
      guid_{Holder::random().id()},
      lock_{parts.calls.lock_of(resource)} {}

Attempt::~Attempt() {
  if (is_granted_ || (path_.empty() && !may_exist_)) return;
  try {
    if (!path_.empty() && stay_.session->state() == Session::State::connected) {
      LockCalls::remove(*stay_.session, path_);
      return;
    }
  } catch (const Error&) {
    // Then it is done when that can be done.
  }
  parts_.sweeper.remove({stay_.session, lock_, guid_, path_});
}

std::optional<Grant> Attempt::ask() {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    stay_connected();
    try {
      find_or_enter();
      const auto grant = ask_once();
      if (grant || before_) return grant;
    } catch (const OutcomeUnknown& fault) {
      // Whatever became of the node: it is granted nothing without being asked for.
      if (stay_.is_unbroken()) throw Unavailable(std::string{fault.what()} + "; nothing is held");
    } catch (const Unavailable&) {
      if (stay_.is_unbroken()) throw;
    }
  }
  throw Unavailable("the node for the lock of " + resource_.name() + " is lost as often as it is made");
}

void Attempt::stay_connected() {
  if (stay_.session && stay_.is_unbroken()) return;
  auto stay = parts_.sessions.stay(ttl_, stop_);
  if (stay.session != stay_.session) {
    path_.clear();
    may_exist_ = false;
  }
  stay_ = std::move(stay);
}

void Attempt::find_or_enter() {
  if (!path_.empty()) return;
  auto& session = *stay_.session;
  if (may_exist_) {
    const auto found = parts_.calls.find(session, lock_, guid_);
    // A call that was given up and then arrived after all made one more.
    for (std::size_t i = 1; i < found.size(); ++i)
      parts_.sweeper.remove({stay_.session, lock_, guid_, found[i]});
    if (!found.empty()) path_ = found.front();
    if (!found.empty()) return;
  }
  may_exist_ = true;
  path_ = parts_.calls.enter(session, lock_, guid_, holder_);
}

// Neither a grant nor somebody before it: it is not there any more, or no longer certain.
std::optional<Grant> Attempt::ask_once() {
  const auto asked_at = BootClock::now();
  const auto place = parts_.calls.look(*stay_.session, path_);
  before_ = place.before;
  if (!place.is_there) {
    path_.clear();
    may_exist_ = false;
    return std::nullopt;
  }
  if (before_) return std::nullopt;
  const Claim claim{resource_, *place.token, holder_, std::nullopt};
  const auto term = lease_term(*stay_.session, ttl_);
  if (!parts_.tenures.add({claim, {stay_.session, lock_, guid_, path_}, stay_.since, asked_at + term})) {
    return std::nullopt;
  }
  is_granted_ = true;
  return Grant{claim, term, true, asked_at};
}

void Attempt::ring_when_next(const std::shared_ptr<Bell>& bell) {
  const auto answer = stay_.session->exists(*before_, [bell](bool) { bell->ring(); });
  if (answer.code != Code::ok) bell->ring();
}

}  // namespace fenceguard::zookeeper
