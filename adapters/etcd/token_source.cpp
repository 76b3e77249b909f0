#include "adapters/etcd/token_source.hpp"

#include <algorithm>

#include "adapters/etcd/lock/lock_client.hpp"
#include "guard/error.hpp"
#include "guard/source/acquire_deadline.hpp"
#include "guard/source/boot_condition.hpp"
#include "guard/source/lock_keys.hpp"

namespace fenceguard::etcd {
namespace {

using Ms = std::chrono::milliseconds;

constexpr Ms look_again_after{10'000};  // where nothing was heard: a watch may miss an event
constexpr Ms pause_after_fault{200};

// One wait of one thread for one lock. Its queue entry is given up with it, unless it was granted.
class Wait {
 public:
  Wait(LockClient& calls, const LockClient::Ask& ask, const AcquireOptions& options)
      : client_{calls}, ask_{ask}, stop_{options.stop}, deadline_{options} {}
  ~Wait() { give_up(); }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  // Neither a grant nor none while it is not known whether a look whose answer was lost has taken the lock.
  std::optional<Grant> run() {
    try {
      auto grant = wait();
      if (!grant && !is_certainly_none())
        throw OutcomeUnknown("etcd: the last look at the lock has no answer");
      return grant;
    } catch (const Unavailable& fault) {
      if (is_certainly_none()) throw;
      throw OutcomeUnknown(fault.what());
    }
  }

 private:
  std::optional<Grant> wait() {
    auto status = client_.ask(ask_);
    deadline_.reached();
    for (;;) {
      take(status);
      if (status.grant) return status.grant;
      if (stop_.stop_requested()) return std::nullopt;
      const bool is_over = deadline_.is_over();
      if (is_over && is_last_look_) return std::nullopt;
      is_last_look_ = is_over;
      if (!is_over && position_) watch(status);
      if (stop_.stop_requested()) return std::nullopt;
      status = look();
    }
  }

  void take(const LockClient::QueueStatus& status) {
    // A queue entry that was granted is the lease's now; one that another lease of the same holder made
    // needless is given up.
    if (status.grant && status.grant->is_new) position_.reset();
    if (status.position) position_ = std::make_unique<LockClient::QueuePosition>(*status.position);
  }

  void watch(const LockClient::QueueStatus& status) {
    const Meanwhile keeping{position_->lease.ttl / 3, [this] { return client_.keep(*position_); }};
    const auto since = BootClock::now();
    try {
      if (client_.wait(
              {status.ahead, status.revision, std::min(deadline_.left(), look_again_after), stop_, keeping}))
        return;
    } catch (const InvalidInput&) {
      throw;
    } catch (const Error&) {
      // Told nothing: the look that follows finds out.
    }
    // One that ends at once, as behind a proxy that passes on no streams, must not make looking a hot loop.
    const auto until = std::min(since + pause_after_fault, deadline_.time());
    sleep_for(until - BootClock::now(), stop_);
  }

  // Outlasts a change of the leader: a look may be repeated, whatever became of the one before.
  LockClient::QueueStatus look() {
    for (;;) {
      try {
        auto status = look_once();
        may_be_granted_ = false;
        return status;
      } catch (const InvalidInput&) {
        throw;
      } catch (const Error& fault) {
        if (fault.kind() == FaultKind::unknown) may_be_granted_ = true;
        deadline_.outlast();
        if (stop_.stop_requested()) return {};
      }
      sleep_for(pause_after_fault, stop_);
    }
  }

  LockClient::QueueStatus look_once() {
    if (position_) {
      auto status = client_.look(*position_);
      if (status.grant || status.position) return status;
      give_up();
    }
    try {
      return client_.ask(ask_);  // the queue entry was lost: the next one is the last
    } catch (const OutcomeUnknown&) {
      is_ask_unknown_ = true;
      throw;
    }
  }

  bool is_certainly_none() noexcept { return (!may_be_granted_ || give_up()) && !is_ask_unknown_; }

  // True: there was a queue entry, and it is gone.
  bool give_up() noexcept {
    const bool is_gone = position_ && client_.leave(*position_);
    position_.reset();
    return is_gone;
  }

  LockClient& client_;
  const LockClient::Ask& ask_;
  const std::stop_token stop_;
  AcquireDeadline deadline_;
  bool is_last_look_ = false;
  bool may_be_granted_ = false;                          // by a look, or an ask, whose answer was lost
  bool is_ask_unknown_ = false;                          // it may be granted late, under a lease of its own
  std::unique_ptr<LockClient::QueuePosition> position_;  // none: it was lost
};

class EtcdSource : public TokenSource, public LeaseLister, public LockKeys {
 public:
  EtcdSource(const Address& address, const std::string& lock_key) : client_{address, lock_key} {}

  std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder, Ms ttl) override {
    auto status = client_.ask({resource, holder, ttl});
    if (status.grant) return *std::move(status.grant);
    return LockBusy{client_.remaining(status.holder_lease)};
  }

  std::optional<Grant> wait_acquire(const Resource& resource, const Holder& holder,
                                    const AcquireOptions& options) override {
    const LockClient::Ask ask{resource, holder, options.ttl, options.wait > Ms{0}};
    if (!ask.waits) return client_.ask(ask).grant;
    return Wait{client_, ask, options}.run();
  }

  std::optional<Token> token_of_key(const std::string& key) override { return client_.token_of_key(key); }

  Renewal renew(const Claim& claim, Ms ttl) override {
    return client_.renew(claim, ttl) ? Renewal::renewed : Renewal::lost;
  }
  Release release(const Claim& claim) override { return client_.release(claim); }
  Release end(const Resource& resource) override { return client_.end(resource); }
  std::optional<LeaseRecord> show(const Resource& resource) override { return client_.show(resource); }
  void raise(const Resource& resource, Token mark) override { client_.raise(resource, mark); }
  Token draw() override { return client_.draw(); }
  std::optional<Token> lowest_live() override { return client_.lowest_live(); }
  LeasePage list_leases(const FenceListing& listing) override { return client_.list(listing); }

 private:
  LockClient client_;
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
