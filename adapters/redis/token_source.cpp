#include "adapters/redis/token_source.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "adapters/redis/fences/address_beside_source.hpp"
#include "adapters/redis/lock/lock_client.hpp"
#include "adapters/redis/lock/release_subscriber.hpp"
#include "guard/error.hpp"
#include "guard/source/acquire_deadline.hpp"

namespace fenceguard::redis {
namespace {

using Ms = std::chrono::milliseconds;

constexpr Ms ask_foreign_lock_after{100};  // whose release is not announced
constexpr Ms ask_after_at_most{5'000};     // nor that a key was deleted by hand or evicted
constexpr Ms look_in_line_after = LockClient::place_life / 3;
constexpr int replicas_max = 100;

class RedisSource : public TokenSource {
 public:
  RedisSource(const Address& address, std::unique_ptr<LockClient> client)
      : client_{std::move(client)}, subscriber_{address} {}

  std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder, Ms ttl) override {
    const auto answer = calls_.ask({resource, holder, ttl, false, {}});
    if (answer.grant) return *answer.grant;
    return LockBusy{std::max(answer.refusal.left, Ms{1})};
  }

  std::optional<Grant> wait_acquire(const Resource& resource, const Holder& holder,
                                    const AcquireOptions& options) override;

  Renewal renew(const Claim& claim, Ms ttl) override { return calls_.renew(claim, ttl); }
  Release release(const Claim& claim) override { return calls_.release(claim); }
  Release end(const Resource& resource) override { return calls_.end(resource); }
  std::optional<LeaseRecord> show(const Resource& resource) override { return calls_.show(resource); }
  void raise(const Resource& resource, Token mark) override { calls_.raise(resource, mark, 0); }
  Token draw() override { return calls_.draw(); }
  std::optional<Token> lowest_live() override { return calls_.lowest_live(); }

 private:
  const std::unique_ptr<LockClient> client_;

 protected:
  LockClient& calls_ = *client_;

 private:
  class Wait;

  ReleaseSubscriber subscriber_;
};

// At one server, which knows all locks of the namespace.
class OneServerSource : public RedisSource, public LeaseLister, public CounterRepair {
 public:
  using RedisSource::RedisSource;
  void raise(const Resource& resource, Token mark) override { calls_.raise(resource, mark, raise_max); }
  void raise_far(Token mark, const std::string& done_by) override { calls_.raise_far(mark, done_by); }
  Token lower(Token mark, const std::string& done_by) override { return calls_.lower(mark, done_by); }
  LeasePage list_leases(const FenceListing& listing) override { return calls_.list(listing); }
};

// One wait of one thread for one lock.
class RedisSource::Wait {
 public:
  Wait(RedisSource& source, const LockClient::Ask& ask, const AcquireOptions& options)
      : calls_{source.calls_},
        ask_{ask},
        place_{source.subscriber_, calls_.channel(ask.resource), ask.waiter, options.stop},
        stop_{options.stop} {}

  // REQUIRES: refusal is the answer to the first attempt.
  std::optional<Grant> run(const LockClient::Refusal& refusal, AcquireDeadline& deadline);

 private:
  std::optional<Grant> attempt();
  [[nodiscard]] bool is_my_turn();
  [[nodiscard]] Ms pause_after(const LockClient::Refusal& refusal) const;

  LockClient& calls_;
  const LockClient::Ask& ask_;
  ReleaseSubscriber::Waiter place_;
  const std::stop_token stop_;
};

std::optional<Grant> RedisSource::Wait::run(const LockClient::Refusal& refusal, AcquireDeadline& deadline) {
  place_.look_no_later(pause_after(refusal));
  for (;;) {
    const auto wake = place_.wait(deadline.time());
    if (wake == ReleaseSubscriber::Waiter::Wake::over)
      return stop_.stop_requested() ? std::nullopt : attempt();
    try {
      // Only with order is it known whose turn it is; otherwise the first to look takes the lock.
      if (calls_.is_fair() && wake == ReleaseSubscriber::Waiter::Wake::first && !is_my_turn()) continue;
      if (auto grant = attempt()) return grant;
    } catch (const Unavailable&) {
      deadline.outlast();
      place_.look_after(AcquireDeadline::outage_retry);
    }
  }
}

std::optional<Grant> RedisSource::Wait::attempt() {
  const auto asked_at = BootClock::now();
  auto answer = calls_.ask(ask_);
  if (!answer.grant) {
    place_.look_after(pause_after(answer.refusal));
    return std::nullopt;
  }
  // The next one in this process looks when this lease runs out, unless it hears of its release before.
  place_.look_after(pause_after({answer.grant->ttl, true, {}, {}}));
  answer.grant->asked_at = asked_at;
  return answer.grant;
}

bool RedisSource::Wait::is_my_turn() {
  const auto view = calls_.look(ask_.resource, place_.ids());
  if (view.first == ask_.waiter) return true;
  place_.look_after(pause_after(view));
  if (!view.first.empty()) place_.call(view.first);
  for (const auto& waiter : view.lost) place_.call(waiter);
  return false;
}

Ms RedisSource::Wait::pause_after(const LockClient::Refusal& refusal) const {
  Ms pause = std::min(refusal.left, ask_after_at_most) + Ms{1};
  if (!refusal.is_ours) pause = std::min(pause, ask_foreign_lock_after);
  if (calls_.is_fair()) pause = std::min(pause, look_in_line_after);
  return pause;
}

std::optional<Grant> RedisSource::wait_acquire(const Resource& resource, const Holder& holder,
                                               const AcquireOptions& options) {
  AcquireDeadline deadline{options};
  const auto asked_at = BootClock::now();
  const bool waits = options.wait > Ms{0};
  const bool is_in_line = waits && calls_.is_fair();
  const LockClient::Ask ask{resource, holder, options.ttl, true,
                            is_in_line ? Holder::random().id() : std::string{}};
  auto answer = calls_.ask(ask);
  if (answer.grant) {
    answer.grant->asked_at = asked_at;
    return answer.grant;
  }
  if (!waits) return std::nullopt;
  deadline.reached();
  struct Leaving {
    LockClient& calls;
    const LockClient::Ask& ask;
    bool is_in_line;
    ~Leaving() {
      if (is_in_line) calls.leave(ask.resource, ask.waiter);
    }
  } leaving{calls_, ask, is_in_line};
  auto grant = Wait{*this, ask, options}.run(answer.refusal, deadline);
  if (grant) leaving.is_in_line = false;
  return grant;
}

}  // namespace

std::unique_ptr<TokenSource> open_source(const Url& url) {
  const auto address = address_beside_source(url);
  LockOptions options;
  options.lock_key = url.parameter("lock_key").value_or(options.lock_key);
  if (url.parameters.contains("lock_key") && options.lock_key.empty())
    throw InvalidInput("?lock_key of a redis: URL is empty; it reads PREFIX%sSUFFIX");
  options.is_fair = url.flag("fair", options.is_fair);
  options.replicas = static_cast<int>(url.number("wait_replicas", options.replicas, replicas_max));
  auto client = std::make_unique<LockClient>(address, options);
  if (client->is_cluster()) return std::make_unique<RedisSource>(address, std::move(client));
  return std::make_unique<OneServerSource>(address, std::move(client));
}

}  // namespace fenceguard::redis
