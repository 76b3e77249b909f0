#include "adapters/zookeeper/session_keeper.hpp"

#include <utility>

namespace fenceguard::zookeeper {
namespace {

bool is_over(const Session& session) {
  const auto state = session.state();
  return state == Session::State::expired || state == Session::State::refused;
}

}  // namespace

SessionKeeper::SessionKeeper(Address address, Broke broke)
    : address_{std::move(address)},
      broke_{std::move(broke)},
      session_timeout_{address_.session_timeout.value_or(std::chrono::milliseconds{0})} {}

Stay SessionKeeper::stay(std::chrono::milliseconds ttl, const std::stop_token& stop) {
  for (;;) {
    Stay stay;
    {
      const std::scoped_lock lock{mutex_};
      open_if_needed(ttl);
      stay.session = session_;
      stay.since = {life_, life_->breaks};
    }
    const bool is_connected = connects(*stay.session, stop);
    if (is_connected && stay.is_unbroken()) return stay;
    // Where the session expired, or broke again, there is another one to be had.
    if (!is_connected && stay.session->state() != Session::State::expired) stay.session->require_connected();
  }
}

// Within the time for one answer.
bool SessionKeeper::connects(const Session& session, const std::stop_token& stop) const {
  static constexpr std::chrono::milliseconds look_again{50};
  const auto deadline = std::chrono::steady_clock::now() + address_.timeout;
  while (!session.connects_within(look_again)) {
    const auto is_late = std::chrono::steady_clock::now() >= deadline;
    if (is_late || stop.stop_requested() || is_over(session)) return false;
  }
  return true;
}

void SessionKeeper::open_if_needed(std::chrono::milliseconds ttl) {
  if (session_ && !is_over(*session_)) return;
  if (session_timeout_.count() == 0) session_timeout_ = ttl;
  auto life = std::make_shared<SessionLife>();
  session_.reset();
  session_ = std::make_shared<Session>(address_, session_timeout_, [this, life](Session::State state) {
    if (state == Session::State::connected) return;
    ++life->breaks;
    broke_(*life);
  });
  life_ = std::move(life);
}

Stay SessionKeeper::stay_after(bool is_unknown) {
  try {
    return stay();
  } catch (const Unavailable& fault) {
    if (is_unknown) throw OutcomeUnknown(fault.what());
    throw;
  }
}

bool SessionKeeper::is_ready() const {
  const std::scoped_lock lock{mutex_};
  return !session_ || session_->state() != Session::State::connecting;
}

std::chrono::milliseconds SessionKeeper::session_timeout() const {
  const std::scoped_lock lock{mutex_};
  return session_ ? session_->session_timeout() : session_timeout_default;
}

void SessionKeeper::close() {
  const std::scoped_lock lock{mutex_};
  session_.reset();
}

}  // namespace fenceguard::zookeeper
