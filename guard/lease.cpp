#include "guard/lease.hpp"

#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>

#include "guard/error.hpp"
#include "guard/source/boot_condition.hpp"
#include "guard/source/lease_term.hpp"

namespace fenceguard {

// Two threads: one renews, which may block for as long as the source likes; the other only waits for the end
// of the term, so that the signal is never late because a renewal hangs.
class Lease::Renewer {
 public:
  Renewer(TokenSource& source, Grant grant, LeaseTerms terms)
      : source_{source},
        claim_{std::move(grant.claim)},
        ttl_{grant.ttl},
        held_until_{std::move(terms.held_until)},
        term_{grant.ttl, grant.asked_at, terms.time_to_stop} {
    if (held_until_) held_until_(term_.lost_at());
    renewal_thread_ = std::jthread{[this](const std::stop_token& stop) { renew_until(stop); }};
    expiry_watchdog_ = std::jthread{[this](const std::stop_token& stop) { watch_until(stop); }};
    told_.emplace(source_.lost(claim_), [this] { end_term(); });
  }
  ~Renewer() { stop(); }
  Renewer(const Renewer&) = delete;
  Renewer& operator=(const Renewer&) = delete;

  void stop() {
    const std::scoped_lock lock{stop_mutex_};
    renewal_thread_.request_stop();
    expiry_watchdog_.request_stop();
    if (renewal_thread_.joinable()) renewal_thread_.join();
    if (expiry_watchdog_.joinable()) expiry_watchdog_.join();
  }

  Release release() {
    stop();
    {
      const std::scoped_lock lock{mutex_};
      if (released_) return Release::not_held;
      released_ = true;
    }
    return source_.release(claim_);
  }

  void renew_now() {
    const std::scoped_lock lock{mutex_};
    wanted_at_ = BootClock::now();
    term_.renew_now(wanted_at_);
    changed_.notify_all();
  }

  [[nodiscard]] const Claim& claim() const noexcept { return claim_; }
  [[nodiscard]] std::stop_token lost() const noexcept { return lost_.get_token(); }
  [[nodiscard]] std::optional<Loss> loss() const {
    const std::scoped_lock lock{mutex_};
    return term_.is_lost(BootClock::now()) ? std::optional{doubt_} : std::nullopt;
  }

 private:
  // What the source learned between two renewals.
  void end_term() {
    const std::scoped_lock lock{mutex_};
    doubt_ = {Loss::Kind::unreachable, "its connection broke"};
    term_.ended();
    changed_.notify_all();
  }

  void renew_until(const std::stop_token& stop) {
    std::unique_lock lock{mutex_};
    for (;;) {
      const auto due = term_.renew_at();
      changed_.wait_until(lock, stop, due,
                          [&] { return term_.is_lost(BootClock::now()) || term_.renew_at() != due; });
      if (stop.stop_requested() || term_.is_lost(BootClock::now())) break;
      if (BootClock::now() < term_.renew_at()) continue;
      // What is to be said of it if no answer comes in time.
      if (doubt_.detail.empty()) doubt_ = {Loss::Kind::unreachable, "it did not answer"};
      lock.unlock();
      const auto sent_at = BootClock::now();
      auto ending = renew_once();
      lock.lock();
      note(std::move(ending), sent_at);
      // What was sent before says nothing of what is asked for since.
      if (wanted_at_ > sent_at) term_.renew_now(wanted_at_);
      changed_.notify_all();
    }
  }

  // The answer, or the reason why there was none.
  std::variant<Renewal, std::string> renew_once() {
    try {
      return source_.renew(claim_, ttl_);
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  // REQUIRES: mutex_ is held.
  void note(std::variant<Renewal, std::string> ending, BootClock::time_point sent_at) {
    const auto now = BootClock::now();
    if (auto* reason = std::get_if<std::string>(&ending)) {
      // No answer proves nothing: the term runs on, and the next attempt comes soon.
      if (term_.is_lost(now)) return;
      doubt_ = {Loss::Kind::unreachable, std::move(*reason)};
      return term_.renewal_failed(now);
    }
    if (std::get<Renewal>(ending) == Renewal::lost) {
      doubt_ = {Loss::Kind::ended};
      return term_.ended();
    }
    if (term_.is_lost(now)) return;
    doubt_ = {};
    term_.renewed(sent_at, now);
    if (held_until_) held_until_(term_.lost_at());
  }

  void watch_until(const std::stop_token& stop) {
    std::unique_lock lock{mutex_};
    while (!stop.stop_requested()) {
      if (term_.is_lost(BootClock::now())) {
        lock.unlock();
        lost_.request_stop();
        return;
      }
      changed_.wait_until(lock, stop, term_.lost_at(), [this] { return term_.is_lost(BootClock::now()); });
    }
  }

  TokenSource& source_;
  const Claim claim_;
  const std::chrono::milliseconds ttl_;
  const std::function<void(BootClock::time_point)> held_until_;
  std::stop_source lost_;
  std::mutex stop_mutex_;
  mutable std::mutex mutex_;  // guards term_, wanted_at_, doubt_ and released_
  BootCondition changed_;
  LeaseTerm term_;
  BootClock::time_point wanted_at_{};  // the last renew_now()
  Loss doubt_;                         // what there is to say if the lease is lost now
  bool released_ = false;
  std::jthread renewal_thread_;
  std::jthread expiry_watchdog_;
  std::optional<std::stop_callback<std::function<void()>>> told_;  // the last: it uses all the others
};

Lease::Lease(TokenSource& source, Grant grant, LeaseTerms terms)
    : renewer_{std::make_unique<Renewer>(source, std::move(grant), std::move(terms))} {}
Lease::Lease(Lease&&) noexcept = default;

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    Lease ended{std::move(*this)};
    renewer_ = std::move(other.renewer_);
  }
  return *this;
}

Lease::~Lease() {
  if (!renewer_) return;
  try {
    renewer_->release();
  } catch (const std::exception&) {
    // Left to the time to live.
  }
}

const Claim& Lease::claim() const noexcept {
  return renewer_->claim();
}
std::stop_token Lease::lost() const noexcept {
  return renewer_->lost();
}
std::optional<Loss> Lease::loss() const {
  return renewer_->loss();
}
void Lease::renew_now() {
  renewer_->renew_now();
}
Release Lease::release() {
  return renewer_->release();
}

std::optional<Lease> TokenSource::acquire(const Resource& resource, const AcquireOptions& options) {
  require_sensible_ttl(options.ttl);
  const Holder holder = options.holder.value_or(Holder::random());
  auto grant = wait_acquire(resource, holder, options);
  if (!grant) return std::nullopt;
  return Lease{*this, std::move(*grant)};
}

}  // namespace fenceguard
