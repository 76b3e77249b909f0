#include "tests/guard/memory_source.hpp"

#include <algorithm>

#include "guard/error.hpp"

namespace fenceguard::test {

MemorySource::~MemorySource() {
  set_renewal_fault(Fault::none);
}

MemorySource::Entry* MemorySource::live(const Resource& resource) {
  const auto found = leases_.find(resource);
  if (found == leases_.end() || BootClock::now() >= found->second.expires_at) return nullptr;
  return &found->second;
}

MemorySource::Entry* MemorySource::live(const Claim& claim) {
  auto* entry = live(claim.resource);
  return entry && entry->token == claim.token && entry->holder == claim.holder ? entry : nullptr;
}

std::variant<Grant, LockBusy> MemorySource::try_acquire(const Resource& resource, const Holder& holder,
                                                        std::chrono::milliseconds ttl) {
  const std::scoped_lock lock{mutex_};
  const auto now = BootClock::now();
  if (auto* entry = live(resource)) {
    if (entry->holder != holder) {
      return LockBusy{std::chrono::ceil<std::chrono::milliseconds>(entry->expires_at - now)};
    }
    entry->expires_at = std::max<BootClock::time_point>(entry->expires_at, now + ttl);
    return Grant{{resource, entry->token, holder, {}}, ttl, false, {}};
  }
  const Token token{++counter_};
  leases_.insert_or_assign(resource, Entry{token, holder, now + ttl});
  return Grant{{resource, token, holder, {}}, ttl, true, {}};
}

Renewal MemorySource::renew(const Claim& claim, std::chrono::milliseconds ttl) {
  std::unique_lock lock{mutex_};
  renewals_.push_back(BootClock::now());
  changed_.notify_all();
  changed_.wait(lock, [this] { return renewal_fault_ != Fault::hang; });
  if (renewal_fault_ == Fault::unavailable) throw Unavailable("the source was told not to answer");
  auto* entry = live(claim);
  if (!entry) return Renewal::lost;
  entry->expires_at = BootClock::now() + ttl;
  return Renewal::renewed;
}

Release MemorySource::release(const Claim& claim) {
  const std::scoped_lock lock{mutex_};
  if (release_fault_ == Fault::unavailable) throw Unavailable("the source was told not to answer");
  if (!live(claim)) return Release::not_held;
  leases_.erase(claim.resource);
  return Release::released;
}

Release MemorySource::end(const Resource& resource) {
  const std::scoped_lock lock{mutex_};
  if (!live(resource)) return Release::not_held;
  leases_.erase(resource);
  return Release::released;
}

std::optional<LeaseRecord> MemorySource::show(const Resource& resource) {
  const std::scoped_lock lock{mutex_};
  const auto* entry = live(resource);
  if (!entry) return std::nullopt;
  const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(entry->expires_at - BootClock::now());
  return LeaseRecord{{resource, entry->token, entry->holder, {}}, remaining};
}

void MemorySource::raise(const Resource&, Token mark) {
  const std::scoped_lock lock{mutex_};
  counter_ = std::max(counter_, mark.value());
  raised_.push_back(mark);
}

Token MemorySource::draw() {
  const std::scoped_lock lock{mutex_};
  return Token{++counter_};
}

std::optional<Token> MemorySource::lowest_live() {
  const std::scoped_lock lock{mutex_};
  Token lowest{counter_ + 1};
  for (const auto& [resource, entry] : leases_) {
    if (live(resource)) lowest = std::min(lowest, entry.token);
  }
  return lowest;
}

void MemorySource::set_renewal_fault(Fault fault) {
  const std::scoped_lock lock{mutex_};
  renewal_fault_ = fault;
  changed_.notify_all();
}

void MemorySource::set_release_fault(Fault fault) {
  const std::scoped_lock lock{mutex_};
  release_fault_ = fault;
}

void MemorySource::fall_back_to(std::int64_t counter) {
  const std::scoped_lock lock{mutex_};
  counter_ = counter;
}

std::vector<BootClock::time_point> MemorySource::renewals() const {
  const std::scoped_lock lock{mutex_};
  return renewals_;
}

std::vector<Token> MemorySource::raised() const {
  const std::scoped_lock lock{mutex_};
  return raised_;
}

bool MemorySource::wait_for_renewals(std::size_t count) const {
  std::unique_lock lock{mutex_};
  return changed_.wait_for(lock, std::chrono::seconds{60}, [&] { return renewals_.size() >= count; });
}

}  // namespace fenceguard::test
