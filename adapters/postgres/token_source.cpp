#include "adapters/postgres/token_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "adapters/postgres/errors.hpp"
#include "adapters/postgres/fences/schema.hpp"
#include "adapters/postgres/lock/lease_client.hpp"
#include "adapters/postgres/lock/release_listener.hpp"
#include "adapters/postgres/lock/session_lock_source.hpp"
#include "guard/error.hpp"
#include "guard/source/acquire_deadline.hpp"

namespace fenceguard::postgres {
namespace {

// Leases by the server's clock.
class TtlSource : public TokenSource, public LeaseLister, public CounterRepair {
 public:
  using Ms = std::chrono::milliseconds;

  explicit TtlSource(const std::vector<Address>& addresses)
      : pool_{addresses}, listener_{addresses.front()} {}

  std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder, Ms ttl) override {
    require_sensible_ttl(ttl);
    return calls_.acquire(resource, holder, ttl);
  }
  Renewal renew(const Claim& claim, Ms ttl) override {
    require_sensible_ttl(ttl);
    return calls_.renew(claim, ttl);
  }
  Release release(const Claim& claim) override { return calls_.release(claim); }
  Release end(const Resource& resource) override { return calls_.end(resource); }
  std::optional<LeaseRecord> show(const Resource& resource) override { return calls_.show(resource); }
  void raise(const Resource&, Token mark) override { calls_.raise(mark); }
  void raise_far(Token mark, const std::string& done_by) override { calls_.raise_far(mark, done_by); }
  Token lower(Token mark, const std::string& done_by) override { return calls_.lower(mark, done_by); }
  Token draw() override { return calls_.draw(); }
  std::optional<Token> lowest_live() override { return calls_.lowest_live(); }
  LeasePage list_leases(const FenceListing& listing) override { return calls_.list(listing); }

  std::optional<Grant> wait_acquire(const Resource& resource, const Holder& holder,
                                    const AcquireOptions& options) override {
    AcquireDeadline deadline{options};
    std::optional<ReleaseListener::Watch> watch;
    for (;;) {
      const auto asked_at = BootClock::now();
      auto answer = deadline.ask([&] { return try_acquire(resource, holder, options.ttl); });
      if (auto* grant = std::get_if<Grant>(&answer)) {
        grant->asked_at = asked_at;
        return std::move(*grant);
      }
      if (deadline.gives_up()) return std::nullopt;
      const auto until = deadline.until(std::get<LockBusy>(answer).retry_after);
      if (watch) {
        watch->wait(until);
      } else {
        // Asks once more from here on, so that a release before the listening began is not missed.
        watch.emplace(listener_, resource, until, options.stop);
      }
      if (options.stop.stop_requested()) return std::nullopt;
    }
  }

 private:
  Pool pool_;
  LeaseClient calls_{pool_};
  ReleaseListener listener_;
};

// A connection whose machine went away without a word is noticed in half a minute; one that is being made,
// where another host can be asked instead, in less than a usual time to live.
Address lease_address(Url url) {
  if (url.authority.find(',') != std::string::npos) url.parameters.try_emplace("connect_timeout", "3");
  auto address = address_of(url, {"lock"});
  for (const auto& [name, value] : {std::pair{"keepalives_idle", 10},
                                    {"keepalives_interval", 5},
                                    {"keepalives_count", 3},
                                    {"tcp_user_timeout", 25'000}}) {
    if (!url.parameters.contains(name)) address.conninfo += fmt::format(" {}={}", name, value);
  }
  return address;
}

// The same hosts, each in front once.
std::vector<Address> lease_addresses(Url url) {
  std::vector<Address> addresses;
  const auto shown = url.redacted();
  const auto hosts = 1 + std::ranges::count(url.authority, ',');
  for (auto i = hosts; i > 0; --i) {
    addresses.push_back(lease_address(url));
    addresses.back().shown = shown;
    const auto comma = std::min(url.authority.find(','), url.authority.size());
    if (comma < url.authority.size()) {
      url.authority = url.authority.substr(comma + 1) + "," + url.authority.substr(0, comma);
    }
  }
  return addresses;
}

void require_fit(const Address& address, const std::string& lock) {
  const auto connection = connect(address);
  mapped(Stage::before_commit, "opening " + address.shown, [&] {
    {
      pqxx::nontransaction tx{*connection};
      require_installed(tx);
    }
    if (lock == "advisory" && is_pooled(*connection)) {
      throw InvalidInput(
          "?lock=advisory needs a session of its own, and a pooler stands before this server: connect to the "
          "server itself, or use ?lock=row");
    }
  });
}

}  // namespace

std::unique_ptr<TokenSource> open_source(const Url& url) {
  const auto addresses = lease_addresses(url);
  const auto found = url.parameters.find("lock");
  const std::string lock = found == url.parameters.end() ? "ttl" : found->second;
  if (lock != "ttl" && lock != "row" && lock != "advisory") {
    throw InvalidInput(fmt::format("?lock is ttl, row or advisory, and this is '{}'", lock));
  }
  require_fit(addresses.front(), lock);
  if (lock == "ttl") return std::make_unique<TtlSource>(addresses);
  return std::make_unique<SessionLockSource>(addresses, lock == "row" ? LockKind::row : LockKind::advisory);
}

}  // namespace fenceguard::postgres
