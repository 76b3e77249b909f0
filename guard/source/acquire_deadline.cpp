#include "guard/source/acquire_deadline.hpp"

#include "guard/source/boot_condition.hpp"

namespace fenceguard {

// For sources that do not announce a release: it asks again, as they hint.
std::optional<Grant> TokenSource::wait_acquire(const Resource& resource, const Holder& holder,
                                               const AcquireOptions& options) {
  AcquireDeadline deadline{options};
  for (;;) {
    const auto asked_at = BootClock::now();
    auto answer = deadline.ask([&] { return try_acquire(resource, holder, options.ttl); });
    if (auto* grant = std::get_if<Grant>(&answer)) {
      grant->asked_at = asked_at;
      return std::move(*grant);
    }
    if (deadline.gives_up()) return std::nullopt;
    const auto hint =
        std::clamp(std::get<LockBusy>(answer).retry_after, std::chrono::milliseconds{1}, poll_max);
    sleep_for(deadline.until(hint) - BootClock::now(), options.stop);
    if (options.stop.stop_requested()) return std::nullopt;
  }
}

}  // namespace fenceguard
