#include "adapters/zookeeper/lock/held_leases.hpp"

#include <algorithm>
#include <utility>

namespace fenceguard::zookeeper {

HeldLeases::HeldLeases(OrphanCleaner& cleaner) : cleaner_{cleaner} {
  expirer_ = std::jthread{[this](const std::stop_token& stop) { expire(stop); }};
}

// After a break the session's own thread calls lose_all(): either that finds what was added here, or the
// break is seen here.
bool HeldLeases::add(const HeldLease& lease) {
  std::vector<Kept> replaced;
  {
    const std::scoped_lock lock{mutex_};
    if (!lease.since.is_unbroken()) return false;
    const auto found = kept_.find(lease.claim.resource);
    if (found != kept_.end()) {
      // Another client removed its node, or it would not be this one's turn.
      replaced.push_back(std::move(found->second));
      kept_.erase(found);
    }
    kept_.emplace(lease.claim.resource, Kept{lease, {}});
    has_changed_ = true;
    changed_.notify_all();
  }
  end(std::move(replaced));
  return true;
}

std::optional<HeldLease> HeldLeases::find(const Resource& resource) {
  const std::scoped_lock lock{mutex_};
  const auto found = kept_.find(resource);
  if (found == kept_.end()) return std::nullopt;
  return found->second.lease;
}

std::optional<HeldLease> HeldLeases::find(const Claim& claim) {
  const std::scoped_lock lock{mutex_};
  const auto found = find_claim(claim);
  if (found == kept_.end()) return std::nullopt;
  return found->second.lease;
}

HeldLeases::Map::iterator HeldLeases::find_claim(const Claim& claim) {
  const auto found = kept_.find(claim.resource);
  const bool is_it = found != kept_.end() && found->second.lease.claim == claim.without_sequence();
  return is_it ? found : kept_.end();
}

bool HeldLeases::extend(const Claim& claim, BootClock::time_point until, Shorten shorten) {
  const std::scoped_lock lock{mutex_};
  const auto found = find_claim(claim);
  if (found == kept_.end()) return false;
  auto& lease = found->second.lease;
  if (!lease.since.is_unbroken() || BootClock::now() >= lease.expires_at) return false;
  lease.expires_at = shorten == Shorten::yes ? until : std::max(until, lease.expires_at);
  has_changed_ = true;
  changed_.notify_all();
  return true;
}

std::optional<HeldLease> HeldLeases::release(const Claim& claim) {
  const std::scoped_lock lock{mutex_};
  const auto found = find_claim(claim);
  if (found == kept_.end()) return std::nullopt;
  auto lease = std::move(found->second.lease);
  kept_.erase(found);
  return lease;
}

void HeldLeases::lose(const Claim& claim) {
  std::vector<Kept> ended;
  {
    const std::scoped_lock lock{mutex_};
    const auto found = find_claim(claim);
    if (found == kept_.end()) return;
    ended.push_back(std::move(found->second));
    kept_.erase(found);
  }
  end(std::move(ended));
}

void HeldLeases::lose_node(const std::string& path) {
  lose_where([&](const HeldLease& lease) { return lease.entry.path == path; });
}

void HeldLeases::lose_all(const SessionLife& life) {
  lose_where([&](const HeldLease& lease) { return lease.since.life.get() == &life; });
}

template <class Is>
void HeldLeases::lose_where(const Is& is) {
  std::vector<Kept> ended;
  {
    const std::scoped_lock lock{mutex_};
    for (auto one = kept_.begin(); one != kept_.end();) {
      if (is(one->second.lease)) {
        ended.push_back(std::move(one->second));
        one = kept_.erase(one);
      } else {
        ++one;
      }
    }
  }
  end(std::move(ended));
}

std::stop_token HeldLeases::lost(const Claim& claim) {
  {
    const std::scoped_lock lock{mutex_};
    const auto found = find_claim(claim);
    if (found != kept_.end()) return found->second.lost.get_token();
  }
  std::stop_source over;
  over.request_stop();
  return over.get_token();
}

void HeldLeases::end(std::vector<Kept> ended) {
  for (auto& kept : ended) {
    kept.lost.request_stop();
    cleaner_.remove(std::move(kept.lease.entry));
  }
}

void HeldLeases::expire(const std::stop_token& stop) {
  std::unique_lock lock{mutex_};
  while (!stop.stop_requested()) {
    const auto now = BootClock::now();
    auto next = BootClock::time_point::max();
    std::vector<Kept> ended;
    for (auto one = kept_.begin(); one != kept_.end();) {
      if (one->second.lease.expires_at <= now) {
        ended.push_back(std::move(one->second));
        one = kept_.erase(one);
      } else {
        next = std::min(next, one->second.lease.expires_at);
        ++one;
      }
    }
    if (!ended.empty()) {
      lock.unlock();
      end(std::move(ended));
      lock.lock();
      continue;
    }
    changed_.wait_until(lock, stop, next, [this] { return std::exchange(has_changed_, false); });
  }
}

void HeldLeases::stop() {
  expirer_.request_stop();
  if (expirer_.joinable()) expirer_.join();
  const std::scoped_lock lock{mutex_};
  kept_.clear();
}

}  // namespace fenceguard::zookeeper
