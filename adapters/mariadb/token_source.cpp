#include "adapters/mariadb/token_source.hpp"

#include <fmt/format.h>

#include "adapters/mariadb/lock/lease_client.hpp"
#include "adapters/mariadb/lock/named_lock_source.hpp"
#include "guard/error.hpp"

namespace fenceguard::mariadb {
namespace {

// Leases by the server's clock.
class TtlSource : public TokenSource, public LeaseLister, public CounterRepair {
 public:
  using Ms = std::chrono::milliseconds;

  explicit TtlSource(const Address& address) : calls_{address} {}

  std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder, Ms ttl) override {
    return calls_.acquire(resource, holder, ttl);
  }
  Renewal renew(const Claim& claim, Ms ttl) override { return calls_.renew(claim, ttl); }
  Release release(const Claim& claim) override { return calls_.release(claim); }
  Release end(const Resource& resource) override { return calls_.end(resource); }
  std::optional<LeaseRecord> show(const Resource& resource) override { return calls_.show(resource); }
  LeasePage list_leases(const FenceListing& listing) override { return calls_.list(listing); }
  void raise(const Resource& resource, Token mark) override { calls_.raise(resource, mark); }
  void raise_far(Token mark, const std::string& done_by) override { calls_.raise_far(mark, done_by); }
  Token lower(Token mark, const std::string& done_by) override { return calls_.lower(mark, done_by); }
  Token draw() override { return calls_.draw(); }
  std::optional<Token> lowest_live() override { return calls_.lowest_live(); }

 private:
  LeaseClient calls_;
};

}  // namespace

std::unique_ptr<TokenSource> open_source(const Url& url) {
  const auto address = address_of(url, {"lock"});
  const auto lock = url.parameter("lock").value_or("ttl");
  if (lock == "ttl") return std::make_unique<TtlSource>(address);
  if (lock == "named") return std::make_unique<NamedLockSource>(address);
  throw InvalidInput(fmt::format("?lock is ttl or named, and this is '{}'", lock));
}

}  // namespace fenceguard::mariadb
