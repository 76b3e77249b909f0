#include "adapters/redis/token_source.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "adapters/redis/address_beside_source.hpp"
#include "adapters/redis/lock_calls.hpp"
#include "adapters/redis/waiter.hpp"
#include "guard/error.hpp"

namespace fenceguard::redis {
namespace {

using Ms = std::chrono::milliseconds;

constexpr Ms wait_max = std::chrono::hours{24 * 365 * 10};
constexpr Ms ask_foreign_lock_after{100};  // whose release nobody tells
constexpr Ms ask_after_at_most{5'000};     // nobody tells of a key that was deleted by hand or evicted either
constexpr Ms look_in_line_after = LockCalls::place_life / 3;
constexpr int replicas_max = 100;

class RedisSource : public TokenSource {
 public:
  RedisSource(const Address& address, const LockOptions& options)
      : calls_{address, options}, waiters_{address} {}

  std::variant<Grant, Held> try_acquire(const Resource& resource, const Holder& holder, Ms ttl) override {
    const auto answer = calls_.ask({resource, holder, ttl, false, {}});
    if (answer.grant) return *answer.grant;
    return Held{std::max(answer.refusal.left, Ms{1})};
  }

  std::optional<Grant> wait_acquire(const Resource& resource, const Holder& holder,
                                    const AcquireOptions& options) override;

  Renewal renew(const Claim& claim, Ms ttl) override { return calls_.renew(claim, ttl); }
  Release release(const Claim& claim) override { return calls_.release(claim); }
  Release end(const Resource& resource) override { return calls_.end(resource); }
  std::optional<LeaseRecord> show(const Resource& resource) override { return calls_.show(resource); }
  void raise(const Resource& resource, Token mark) override { calls_.raise(resource, mark); }
  Token draw() override { return calls_.draw(); }
  std::optional<Token> lowest_live() override { return calls_.lowest_live(); }

 private:
  class Wait;

  LockCalls calls_;
  Waiters waiters_;
};

// One wait of one thread for one lock.
class RedisSource::Wait {
 public:
  Wait(RedisSource& source, const LockCalls::Ask& ask, const AcquireOptions& options)
      : calls_{source.calls_},
        ask_{ask},
        place_{source.waiters_, calls_.channel(ask.resource), ask.waiter, options.stop},
        stop_{options.stop} {}

  // REQUIRES: refusal is the answer to the first attempt.
  std::optional<Grant> run(const LockCalls::Refusal& refusal, BootClock::time_point deadline);

 private:
  std::optional<Grant> attempt();
  [[nodiscard]] bool is_my_turn();
  [[nodiscard]] Ms pause_after(const LockCalls::Refusal& refusal) const;

  LockCalls& calls_;
  const LockCalls::Ask& ask_;
  Waiters::Place place_;
  const std::stop_token stop_;
};

std::optional<Grant> RedisSource::Wait::run(const LockCalls::Refusal& refusal,
                                            BootClock::time_point deadline) {
  place_.look_no_later(pause_after(refusal));
  for (;;) {
    const auto wake = place_.wait(deadline);
    if (wake == Waiters::Place::Wake::over) return stop_.stop_requested() ? std::nullopt : attempt();
    // Only with order is it known whose turn it is; else whoever looks takes.
    if (calls_.is_fair() && wake == Waiters::Place::Wake::first && !is_my_turn()) continue;
    if (auto grant = attempt()) return grant;
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

Ms RedisSource::Wait::pause_after(const LockCalls::Refusal& refusal) const {
  Ms pause = std::min(refusal.left, ask_after_at_most) + Ms{1};
  if (!refusal.is_ours) pause = std::min(pause, ask_foreign_lock_after);
  if (calls_.is_fair()) pause = std::min(pause, look_in_line_after);
  return pause;
}

std::optional<Grant> RedisSource::wait_acquire(const Resource& resource, const Holder& holder,
                                               const AcquireOptions& options) {
  // Bounded, so that 'for ever' (milliseconds::max()) does not overflow.
  const auto asked_at = BootClock::now();
  const auto deadline = asked_at + std::min(options.wait, wait_max);
  const bool waits = options.wait > Ms{0};
  const bool is_in_line = waits && calls_.is_fair();
  const LockCalls::Ask ask{resource, holder, options.ttl, true,
                           is_in_line ? Holder::random().id() : std::string{}};
  auto answer = calls_.ask(ask);
  if (answer.grant) {
    answer.grant->asked_at = asked_at;
    return answer.grant;
  }
  if (!waits) return std::nullopt;
  struct Leaving {
    LockCalls& calls;
    const LockCalls::Ask& ask;
    bool is_in_line;
    ~Leaving() {
      if (is_in_line) calls.leave(ask.resource, ask.waiter);
    }
  } leaving{calls_, ask, is_in_line};
  auto grant = Wait{*this, ask, options}.run(answer.refusal, deadline);
  if (grant) leaving.is_in_line = false;
  return grant;
}

bool flag_of(const std::string& name, const std::string& value) {
  if (value == "1") return true;
  if (value == "0") return false;
  throw InvalidInput(fmt::format("?{} of a redis: URL is 0 or 1, and this is '{}'", name, value));
}

int replicas_of(const std::string& value) {
  const auto count = parse_decimal(value);
  if (!count || *count > replicas_max) {
    throw InvalidInput(
        fmt::format("?wait_replicas of a redis: URL is 0 to {}, and this is '{}'", replicas_max, value));
  }
  return static_cast<int>(*count);
}

}  // namespace

std::unique_ptr<TokenSource> open_source(const Url& url) {
  const auto address = address_beside_source(url);
  LockOptions options;
  for (const auto& [name, value] : url.parameters) {
    if (name == "lock_key" && value.empty())
      throw InvalidInput("?lock_key of a redis: URL is empty; it reads PREFIX%sSUFFIX");
    if (name == "lock_key") options.lock_key = value;
    if (name == "fair") options.is_fair = flag_of(name, value);
    if (name == "wait_replicas") options.replicas = replicas_of(value);
  }
  return std::make_unique<RedisSource>(address, options);
}

}  // namespace fenceguard::redis
