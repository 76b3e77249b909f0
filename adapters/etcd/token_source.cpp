#include "adapters/etcd/token_source.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "adapters/etcd/lock_calls.hpp"
#include "guard/error.hpp"

namespace fenceguard::etcd {
namespace {

using Ms = std::chrono::milliseconds;

constexpr Ms wait_max = std::chrono::hours{24 * 365 * 10};
constexpr Ms look_again_after{10'000};  // where nothing was heard: nobody promises that a watch tells all
constexpr Ms pause_after_fault{200};

// One wait of one thread for one lock. Its place is given up with it, unless it was granted.
class Wait {
 public:
  Wait(LockCalls& calls, const LockCalls::Ask& ask, const AcquireOptions& options)
      : calls_{calls},
        ask_{ask},
        stop_{options.stop},
        // Bounded, so that 'for ever' (milliseconds::max()) does not overflow.
        deadline_{BootClock::now() + std::min(options.wait, wait_max)} {}
  ~Wait() { give_up(); }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  std::optional<Grant> run() {
    auto standing = calls_.ask(ask_);
    for (;;) {
      take(standing);
      if (standing.grant) return standing.grant;
      if (stop_.stop_requested()) return std::nullopt;
      const bool is_over = BootClock::now() >= deadline_;
      if (is_over && is_last_look_) return std::nullopt;
      is_last_look_ = is_over;
      if (!is_over && place_) watch(standing);
      if (stop_.stop_requested()) return std::nullopt;
      standing = look();
    }
  }

 private:
  void take(const LockCalls::Standing& standing) {
    // A place that was granted is the lease's now; one that another tenure of the same holder made needless
    // is given up.
    if (standing.grant && standing.grant->is_new) place_.reset();
    if (standing.place) place_ = std::make_unique<LockCalls::Place>(*standing.place);
  }

  void watch(const LockCalls::Standing& standing) {
    const auto left = std::chrono::ceil<Ms>(deadline_ - BootClock::now());
    const Meanwhile keeping{place_->ttl / 3, [this] { return calls_.keep(*place_); }};
    const auto since = BootClock::now();
    try {
      if (calls_.wait({standing.ahead, standing.revision, std::min(left, look_again_after), stop_, keeping}))
        return;
    } catch (const InvalidInput&) {
      throw;
    } catch (const Error&) {
      // Told nothing: the look that follows finds out.
    }
    // One that ends at once, as behind a proxy that passes on no streams, must not make looking a hot loop.
    const auto now = BootClock::now();
    if (const auto until = std::min(since + pause_after_fault, deadline_); now < until)
      pause(std::chrono::ceil<Ms>(until - now));
  }

  // Outlasts a change of the leader: a look may be repeated, whatever became of the one before.
  LockCalls::Standing look() {
    for (;;) {
      try {
        if (place_) {
          auto standing = calls_.look(*place_);
          if (standing.grant || standing.place) return standing;
          give_up();
        }
        return calls_.ask(ask_);  // the place was lost: the next one is the last in line
      } catch (const InvalidInput&) {
        throw;
      } catch (const Error&) {
        if (stop_.stop_requested()) return {};
        if (BootClock::now() >= deadline_) throw;
      }
      pause(pause_after_fault);
    }
  }

  void pause(Ms time) const {
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock{mutex};
    stopped.wait_for(lock, stop_, time, [] { return false; });
  }

  void give_up() noexcept {
    if (place_) calls_.leave(*place_);
    place_.reset();
  }

  LockCalls& calls_;
  const LockCalls::Ask& ask_;
  const std::stop_token stop_;
  const BootClock::time_point deadline_;
  bool is_last_look_ = false;
  std::unique_ptr<LockCalls::Place> place_;  // in the line; none: it was lost
};

class EtcdSource : public TokenSource {
 public:
  EtcdSource(const Address& address, const std::string& lock_key) : calls_{address, lock_key} {}

  std::variant<Grant, Held> try_acquire(const Resource& resource, const Holder& holder, Ms ttl) override {
    auto standing = calls_.ask({resource, holder, ttl});
    if (standing.grant) return *std::move(standing.grant);
    return Held{calls_.remaining(standing.holder_lease)};
  }

  std::optional<Grant> wait_acquire(const Resource& resource, const Holder& holder,
                                    const AcquireOptions& options) override {
    const LockCalls::Ask ask{resource, holder, options.ttl, options.wait > Ms{0}};
    if (!ask.waits) return calls_.ask(ask).grant;
    return Wait{calls_, ask, options}.run();
  }

  Renewal renew(const Claim& claim, Ms ttl) override {
    return calls_.renew(claim, ttl) ? Renewal::renewed : Renewal::lost;
  }
  Release release(const Claim& claim) override { return calls_.release(claim); }
  Release end(const Resource& resource) override { return calls_.end(resource); }
  std::optional<LeaseRecord> show(const Resource& resource) override { return calls_.show(resource); }
  void raise(const Resource& resource, Token mark) override { calls_.raise(resource, mark); }
  Token draw() override { return calls_.draw(); }
  std::optional<Token> lowest_live() override { return calls_.lowest_live(); }

 private:
  LockCalls calls_;
};

}  // namespace

std::unique_ptr<TokenSource> open_source(const Url& url) {
  const auto address = address_of(url, {"lock_key"});
  std::string lock_key;
  if (const auto given = url.parameters.find("lock_key"); given != url.parameters.end()) {
    if (given->second.empty())
      throw InvalidInput("?lock_key of an etcd: URL is empty; it reads PREFIX%sSUFFIX");
    lock_key = given->second;
  }
  return std::make_unique<EtcdSource>(address, lock_key);
}

}  // namespace fenceguard::etcd
