#include "adapters/etcd/lock/lease_pool.hpp"

#include <algorithm>

namespace fenceguard::etcd {

std::optional<EtcdLease> LeasePool::take(std::chrono::milliseconds ttl) {
  const auto asked = std::chrono::ceil<std::chrono::seconds>(ttl);
  const std::scoped_lock lock{mutex_};
  drop_inherited();
  drop_ended(BootClock::now());
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(),
                                  [&](const Entry& one) { return one.lease.asked == asked; });
  if (found == entries_.rend()) return std::nullopt;
  const auto lease = found->lease;
  entries_.erase(std::next(found).base());
  return lease;
}

bool LeasePool::put(const EtcdLease& lease) {
  if (!lease.is_reusable || lease.ttl > ttl_max) return false;
  const auto now = BootClock::now();
  const std::scoped_lock lock{mutex_};
  drop_inherited();
  drop_ended(now);
  const auto ends_at = std::min(now + lease.ttl, lease.made_at + age_max);
  if (ends_at <= now || entries_.size() >= leases_max) return false;
  entries_.push_back({lease, ends_at});
  return true;
}

void LeasePool::drop_inherited() noexcept {
  if (const auto process = ::getpid(); process != process_) {
    process_ = process;
    entries_.clear();
  }
}

void LeasePool::drop_ended(BootClock::time_point now) {
  std::erase_if(entries_, [&](const Entry& one) { return one.ends_at <= now; });
}

}  // namespace fenceguard::etcd
