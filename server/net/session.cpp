#include "server/net/session.hpp"

namespace fenceguard::net {

void ConnectionCounter::enter() {
  const std::lock_guard lock{mutex_};
  ++present_;
}

void ConnectionCounter::leave() {
  const std::lock_guard lock{mutex_};
  if (--present_ == 0) empty_.notify_all();
}

bool ConnectionCounter::wait_until_empty(SteadyTime deadline) {
  std::unique_lock lock{mutex_};
  const auto is_empty = [this] { return present_ == 0; };
  if (deadline == SteadyTime::max()) {
    empty_.wait(lock, is_empty);
    return true;
  }
  return empty_.wait_until(lock, deadline, is_empty);
}

}  // namespace fenceguard::net
