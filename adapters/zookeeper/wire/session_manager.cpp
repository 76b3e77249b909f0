#include "adapters/zookeeper/wire/session_manager.hpp"

#include <algorithm>
#include <utility>

namespace fenceguard::zookeeper {
namespace {

bool is_over(const Session& session) {
  const auto state = session.state();
  return state == Session::State::expired || state == Session::State::refused;
}

// For a server's name to be looked up and the server to answer, however short the session is.
constexpr std::chrono::milliseconds connect_timeout_min{5'000};

}  // namespace

std::chrono::milliseconds lease_term(const Session& session, std::chrono::milliseconds ttl) {
  return std::min(ttl, session.session_timeout() * 2 / 3);
}

SessionManager::SessionManager(Address address, Broke broke)
    : address_{std::move(address)},
      broke_{std::move(broke)},
      session_timeout_{address_.session_timeout.value_or(session_timeout_default)} {}

ConnectionGeneration SessionManager::generation(const std::stop_token& stop) {
  static constexpr std::chrono::milliseconds look_again{50};
  const auto deadline = std::chrono::steady_clock::now() + address_.timeout;
  for (;;) {
    // Where it expired, broke again or was away for too long, there is another one to be had.
    auto generation = current();
    const bool is_connected = generation.session->connects_within(look_again);
    if (is_connected && generation.is_unbroken()) return generation;
    const bool is_late = std::chrono::steady_clock::now() >= deadline;
    const bool is_refused = generation.session->state() == Session::State::refused;
    if (is_late || is_refused || stop.stop_requested()) generation.session->require_connected();
  }
}

ConnectionGeneration SessionManager::current() {
  if (auto generation = usable()) return *std::move(generation);
  std::shared_ptr<Session> over;  // ended last: that may take seconds
  const std::scoped_lock opening{opening_};
  if (auto generation = usable()) return *std::move(generation);
  const auto life = std::make_shared<SessionLife>();
  const auto session =
      std::make_shared<Session>(address_, session_timeout_, [this, life](Session::State state) {
        const bool is_connected = state == Session::State::connected;
        life->away_since = is_connected ? BootClock::time_point::max() : BootClock::now();
        if (is_connected) return;
        ++life->breaks;
        broke_(*life);
      });
  const std::scoped_lock lock{mutex_};
  over = std::exchange(session_, session);
  life_ = life;
  return {session_, {life_, life_->breaks}};
}

// The present one, unless it is over, or takes so long to connect that it must be.
std::optional<ConnectionGeneration> SessionManager::usable() const {
  const std::scoped_lock lock{mutex_};
  if (!session_ || is_over(*session_)) return std::nullopt;
  // The state changes first, so the moment may be missing yet, but is none of an earlier break.
  const bool is_away = session_->state() == Session::State::connecting;
  const auto since = life_->away_since.load();
  const auto connect_timeout = std::max(session_->session_timeout(), connect_timeout_min);
  const bool is_known = since != BootClock::time_point::max();
  if (is_away && is_known && BootClock::now() - since > connect_timeout) return std::nullopt;
  return ConnectionGeneration{session_, {life_, life_->breaks}};
}

ConnectionGeneration SessionManager::generation_after(bool is_unknown) {
  try {
    return generation();
  } catch (const Unavailable& fault) {
    if (is_unknown) throw OutcomeUnknown(fault.what());
    throw;
  }
}

bool SessionManager::is_ready() const {
  const std::scoped_lock lock{mutex_};
  return !session_ || session_->state() != Session::State::connecting;
}

std::chrono::milliseconds SessionManager::session_timeout() const {
  const std::scoped_lock lock{mutex_};
  return session_ ? session_->session_timeout() : session_timeout_;
}

void SessionManager::close() {
  std::shared_ptr<Session> over;
  const std::scoped_lock lock{mutex_};
  over.swap(session_);
}

}  // namespace fenceguard::zookeeper
