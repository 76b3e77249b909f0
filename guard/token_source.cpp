#include "guard/token_source.hpp"

#include <algorithm>

#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "guard/sleep.hpp"

namespace fenceguard {
namespace {

constexpr std::chrono::milliseconds wait_max = std::chrono::hours{24 * 365 * 10};

}  // namespace

void require_sensible_ttl(std::chrono::milliseconds ttl) {
  if (ttl < ttl_min || ttl > ttl_max) throw InvalidInput("a time to live is 10ms to 24 hours");
}

std::optional<Grant> TokenSource::wait_acquire(const Resource& resource, const Holder& holder,
                                               const AcquireOptions& options) {
  // Bounded, so that 'for ever' (milliseconds::max()) does not overflow.
  const auto deadline = BootClock::now() + std::min(options.wait, wait_max);
  for (;;) {
    const auto asked_at = BootClock::now();
    auto answer = try_acquire(resource, holder, options.ttl);
    if (auto* grant = std::get_if<Grant>(&answer)) {
      grant->asked_at = asked_at;
      return std::move(*grant);
    }
    const auto now = BootClock::now();
    if (now >= deadline || options.stop.stop_requested()) return std::nullopt;
    const std::chrono::nanoseconds hint =
        std::clamp(std::get<Held>(answer).retry_after, std::chrono::milliseconds{1}, poll_max);
    sleep_for(std::min(hint, deadline - now), options.stop);
    if (options.stop.stop_requested()) return std::nullopt;
  }
}

std::optional<Lease> TokenSource::acquire(const Resource& resource, const AcquireOptions& options) {
  require_sensible_ttl(options.ttl);
  const Holder holder = options.holder.value_or(Holder::random());
  auto grant = wait_acquire(resource, holder, options);
  if (!grant) return std::nullopt;
  return Lease{*this, std::move(*grant)};
}

std::stop_token TokenSource::lost(const Claim& /*claim*/) {
  return {};
}

}  // namespace fenceguard
