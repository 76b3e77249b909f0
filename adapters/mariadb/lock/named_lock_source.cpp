#include "adapters/mariadb/lock/named_lock_source.hpp"

#include "adapters/mariadb/fences/rulings.hpp"
#include "adapters/mariadb/lock/lease_pool.hpp"
#include "guard/error.hpp"

namespace fenceguard::mariadb {
namespace {

constexpr std::size_t idle_max = 8;

}  // namespace

std::unique_ptr<Session> NamedLockSource::take() {
  const std::scoped_lock lock{mutex_};
  if (idle_.empty()) return std::make_unique<Session>(address_);
  auto session = std::move(idle_.back());
  idle_.pop_back();
  return session;
}

void NamedLockSource::give_back(std::unique_ptr<Session> session) {
  const std::scoped_lock lock{mutex_};
  if (idle_.size() < idle_max) idle_.push_back(std::move(session));
}

std::variant<Grant, LockBusy> NamedLockSource::try_acquire(const Resource& resource, const Holder& holder,
                                                           Ms ttl) {
  require_sensible_ttl(ttl);
  if (auto again = leases_.grant_again(resource, holder, ttl)) return *std::move(again);
  const auto asked_at = BootClock::now();
  // One on which this fails goes, and its lock with it.
  auto session = take();
  const auto rows =
      session->run(Stage::at_commit, "acquiring " + resource.name(), [&](Connection& connection) {
        return call_lease(connection, "acquire_named",
                          {resource.name(), std::to_string(ttl.count()), holder.id()});
      });
  auto answer = grant_of(rows, resource, holder, ttl);
  if (std::holds_alternative<LockBusy>(answer)) {
    give_back(std::move(session));
    return answer;
  }
  const auto& grant = std::get<Grant>(answer);
  return leases_.add(grant.claim, std::move(session), ttl, asked_at);
}

// Whether its session, which is never opened anew, has its lock. If that is not certain, it has not.
bool NamedLockSource::is_held(Leases::Lease& lease) {
  try {
    const auto rows = lease.session->run_if_open(
        "renewing " + lease.claim.resource.name(),
        [&](Connection& connection) { return connection.call("confirm_named", arguments_of(lease.claim)); });
    return number_in(rows, 0) != 0;
  } catch (const Error&) {
    lease.session.reset();
    return false;
  }
}

Release NamedLockSource::let_go(Leases::Lease& lease) {
  auto session = std::move(lease.session);
  if (!session) return Release::not_held;
  try {
    const auto rows =
        session->run_if_open("releasing " + lease.claim.resource.name(), [&](Connection& connection) {
          return connection.call("release_named", {lease.claim.resource.name()});
        });
    give_back(std::move(session));
    return number_in(rows, 0) != 0 ? Release::released : Release::not_held;
  } catch (const std::exception&) {
    return Release::not_held;  // the lock goes with its session, which ends here
  }
}

}  // namespace fenceguard::mariadb
