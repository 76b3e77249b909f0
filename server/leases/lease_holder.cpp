#include "server/leases/lease_holder.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <new>

#include "guard/runner.hpp"

namespace fenceguard {
namespace {

using std::chrono::milliseconds;

// One stay in the line.
constexpr milliseconds wait_max{600'000};
// Between two attempts; doubles with each failure.
constexpr milliseconds pause_min{50};
constexpr milliseconds pause_max{1'000};

LeaseHolder::Options in_order(LeaseHolder::Options options) {
  require_sensible_ttl(options.ttl);
  std::ranges::sort(options.resources);
  const auto [again, end] = std::ranges::unique(options.resources);
  options.resources.erase(again, end);
  return options;
}

std::string names_of(const std::vector<Resource>& resources) {
  std::string names;
  for (const auto& resource : resources)
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", resource.name());
  return names;
}

std::string reason_of(const Loss& loss) {
  switch (loss.kind) {
    case Loss::Kind::expired:
      return "it expired before it could be renewed, because this process or its machine stood still";
    case Loss::Kind::unreachable:
      return "it could not be renewed in time, because its source is unreachable: " + loss.detail;
    case Loss::Kind::ended:
      break;
  }
  return "its source says that it is over: it expired there, was released, or was ended";
}

std::string text_of(std::chrono::system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

}  // namespace

HeldClaims::HeldClaims(std::vector<Claim> held, std::stop_source end,
                       std::optional<std::chrono::system_clock::time_point> lost_before)
    : claims{std::move(held)},
      highest{std::ranges::max(claims, {}, [](const Claim& c) { return c.token; }).token},
      is_first{!lost_before},
      history{lost_before
                  ? fmt::format("the lease was lost at {}; start again from the read", text_of(*lost_before))
                  : fmt::format("the lease was taken at {}, and what was read before may be older; start "
                                "again from the read",
                                text_of(std::chrono::system_clock::now()))},
      end_{std::move(end)} {}

Ruling LeaseHolder::OwnGuard::advance(const Claim& claim) {
  const auto ruling = StoreGuard{fences_}.advance(claim.as_own_grant());
  metrics_.count(ruling.verdict);
  log_.ruled("hold", claim, ruling, "hold");
  if (ruling.verdict != Verdict::admitted) {
    metrics_.count_source_regression();
  } else if (ruling.changed) {
    metrics_.count_advance();
  }
  return ruling;
}

LeaseHolder::LeaseHolder(TokenSource& source, FenceStore& fences, Metrics& metrics, RefusalLog& log,
                         Options options)
    : source_{source},
      metrics_{metrics},
      log_{log},
      options_{in_order(std::move(options))},
      guard_{fences, metrics, log},
      programs_{options_.takes_any_program ? nullptr : std::make_unique<ProgramCheck>()},
      terms_(options_.resources.size()) {
  metrics_.set_held(0);
}

LeaseHolder::~LeaseHolder() {
  stop();
}

void LeaseHolder::start(std::function<void()> lost, milliseconds limit) {
  lost_ = std::move(lost);
  thread_ = std::jthread{[this](const std::stop_token& stop) { run(stop); }};
  std::unique_lock lock{mutex_};
  changed_.wait_for(lock, limit, [this] { return has_tried_; });
}

std::string LeaseHolder::absence() const {
  return fmt::format("this sidecar does not hold {} now; another one may", names_of(options_.resources));
}

std::shared_ptr<HeldClaims> LeaseHolder::present() const {
  const std::scoped_lock lock{mutex_};
  return present_;
}

net::Task<std::string> LeaseHolder::objection_to(net::Loop& loop, int socket,
                                                 std::shared_ptr<const HeldClaims> held,
                                                 std::string client) const {
  if (!programs_) co_return "";
  const auto program = options_.program ? options_.program->root() : std::nullopt;
  const auto objection = co_await programs_->objection_to(loop, socket, {held->begun, program});
  if (objection.empty()) co_return "";
  metrics_.count_older_program();
  log_.program_refused(held->claims.front().resource, objection, client);
  co_return fmt::format("{} ({})", held->history, objection);
}

void LeaseHolder::stop_taking() {
  {
    const std::scoped_lock lock{mutex_};
    takes_ = false;
    if (!present_) waiting_.request_stop();
  }
  if (options_.program) options_.program->close();
}

void LeaseHolder::stop() {
  stop_taking();
  waiting_.request_stop();
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void LeaseHolder::run(const std::stop_token& stop) {
  auto pause = pause_min;
  for (milliseconds wait{0};; wait = wait_max) {
    bool has_failed = true;
    if (wait > wait.zero() && past_.failure.empty())
      spdlog::info("event=\"waiting to hold\" resource={}", fenceguard::quoted(names_of(options_.resources)));
    try {
      std::stop_source end;
      const std::stop_callback on_stop{waiting_.get_token(), [&end] { end.request_stop(); }};
      std::vector<Claim> claims;
      has_failed = !hold_rest(claims, end, wait);
      if (has_failed) note_failure("the guard refused every token that the source granted");
    } catch (const std::exception& error) {
      note_failure(error.what());
    }
    pause = has_failed ? std::min(pause * 2, pause_max) : pause_min;
    std::unique_lock lock{mutex_};
    has_tried_ = true;
    changed_.notify_all();
    if (!takes_) return;
    changed_.wait_for(lock, stop, pause, [] { return false; });
    if (!takes_) return;
  }
}

bool LeaseHolder::hold_rest(std::vector<Claim>& claims, const std::stop_source& end, milliseconds wait) {
  const auto index = claims.size();
  const auto& resource = options_.resources[index];
  RetryPolicy policy{.ttl = options_.ttl, .wait = wait, .stop = end.get_token()};
  if (options_.program) {
    policy.terms = {.time_to_stop = options_.program->time_to_stop(),
                    .held_until = [this, index](BootClock::time_point moment) {
                      terms_.note(index, moment, *options_.program);
                    }};
  }
  Runner runner{source_, guard_, std::move(policy)};
  bool is_held = true;
  const auto result = runner.run(resource, [&](const Lease& lease) {
    const std::stop_callback on_loss{lease.lost(), [&end] { std::stop_source{end}.request_stop(); }};
    claims.push_back(lease.claim());
    if (claims.size() < options_.resources.size()) {
      is_held = hold_rest(claims, end, wait);
    } else {
      stay(claims, end);
    }
    claims.pop_back();
    if (lease.lost().stop_requested()) note_loss(lease);
    return Verdict::admitted;
  });
  return is_held && result.ending != RunResult::Ending::refused;
}

void LeaseHolder::Terms::note(std::size_t index, BootClock::time_point moment, TenureProgram& program) {
  const std::scoped_lock lock{mutex_};
  until_[index] = moment;
  program.work_until(std::ranges::min(until_));
}

BootClock::time_point LeaseHolder::Terms::held_until() const {
  const std::scoped_lock lock{mutex_};
  return std::ranges::min(until_);
}

// Until one of them is lost, or they are to be given back.
void LeaseHolder::stay(const std::vector<Claim>& claims, const std::stop_source& end) {
  const auto held = std::make_shared<HeldClaims>(claims, end, past_.lost_at);
  // A program that is started as soon as this is told is seen to have begun later.
  if (programs_) std::this_thread::sleep_for(net::process_tick());
  {
    const std::scoped_lock lock{mutex_};
    if (!takes_ || end.stop_requested()) return;
    metrics_.set_held(held->highest.value());
    present_ = held;
    has_tried_ = true;
  }
  changed_.notify_all();
  past_.failure.clear();
  log("held", claims);
  if (options_.program) options_.program->begin(terms_.held_until(), [held] { held->refused(); });
  {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, end.get_token(), [] { return false; });
    present_ = nullptr;
    metrics_.set_held(0);
  }
  held->is_over_.store(true);
  past_.lost_at = std::chrono::system_clock::now();
  log("\"held no longer\"", claims);
  lost_();
  if (options_.program) options_.program->end();
}

// Where memory is out it is not logged: what is held is given back all the same.
void LeaseHolder::log(std::string_view event, const std::vector<Claim>& claims) noexcept {
  try {
    for (const auto& claim : claims)
      spdlog::info("event={} resource={} token={}", event, fenceguard::quoted(claim.resource.name()),
                   claim.token.value());
  } catch (const std::bad_alloc&) {
  }
}

void LeaseHolder::note_loss(const Lease& lease) const {
  spdlog::warn("event=\"lease lost\" resource={} token={} reason={}",
               fenceguard::quoted(lease.claim().resource.name()), lease.claim().token.value(),
               fenceguard::quoted(reason_of(lease.loss().value_or(Loss{}))));
}

// Once for each reason.
void LeaseHolder::note_failure(std::string reason) {
  if (reason == past_.failure) return;
  spdlog::warn("event=\"lease not taken\" resource={} reason={}",
               fenceguard::quoted(names_of(options_.resources)), fenceguard::quoted(reason));
  past_.failure = std::move(reason);
}

}  // namespace fenceguard
