#include "tests/sidecar/gates.hpp"

#include "tests/http/support.hpp"

namespace fenceguard::test {

void Gate::close() {
  const std::scoped_lock lock{mutex_};
  is_closed_ = true;
}

void Gate::open() {
  const std::scoped_lock lock{mutex_};
  is_closed_ = false;
  changed_.notify_all();
}

bool Gate::wait_for_calls(int count) {
  std::unique_lock lock{mutex_};
  return changed_.wait_for(lock, http::patience, [&] { return held_ >= count; });
}

void Gate::pass() {
  std::unique_lock lock{mutex_};
  ++held_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return !is_closed_; });
  --held_;
}

std::variant<Grant, LockBusy> GatedSource::try_acquire(const Resource& resource, const Holder& holder,
                                                       std::chrono::milliseconds ttl) {
  asking.pass();
  if (delays_requests.load()) throw OutcomeUnknown("the request is still on its way");
  auto answer = inner_.try_acquire(resource, holder, ttl);
  granted.pass();
  if (loses_answers.load()) throw OutcomeUnknown("the connection broke");
  return answer;
}

Renewal GatedSource::renew(const Claim& claim, std::chrono::milliseconds ttl) {
  renewing.pass();
  if (loses_renewals.load()) throw OutcomeUnknown("the connection broke");
  return inner_.renew(claim, ttl);
}

Release GatedSource::release(const Claim& claim) {
  releasing.pass();
  if (refuses_releases.load()) throw Unavailable("the source cannot be reached");
  return inner_.release(claim);
}

std::optional<Token> GatedSource::lowest_live() {
  if (counts_separately.load()) return std::nullopt;
  return inner_.lowest_live();
}

std::optional<Fault> GatedFences::fault() {
  const std::scoped_lock lock{mutex_};
  if (!fault_) return std::nullopt;
  return Fault{*fault_, "the disk is full"};
}

void GatedFences::revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) {
  if (const auto refused = fault()) return done(*refused);
  if (!fails_after_revoke) return inner_.revoke(std::move(resource), std::move(lease), std::move(done));
  inner_.revoke(std::move(resource), std::move(lease), [done = std::move(done)](const auto&) {
    done(Fault{FaultKind::unavailable, "the end of a write was not seen", std::chrono::seconds{9}});
  });
}

void GatedFences::advance(Claim claim, Done<Ruling> done) {
  advancing.pass();
  if (const auto refused = fault()) return done(*refused);
  inner_.advance(std::move(claim), std::move(done));
}

void GatedFences::set_fault(std::optional<FaultKind> kind) {
  const std::scoped_lock lock{mutex_};
  fault_ = kind;
}

void GatedObjects::write(Claim claim, ObjectWrite write, Done<WriteReport> done) {
  std::unique_lock lock{mutex_};
  if (fault_) return done(Fault{*fault_, "the disk is full"});
  lock.unlock();
  inner_.write(std::move(claim), std::move(write), std::move(done));
}

void GatedObjects::read(Read read, Done<ReadReport> done) {
  std::unique_lock lock{mutex_};
  if (fault_) return done(Fault{*fault_, "the disk is full"});
  lock.unlock();
  inner_.read(std::move(read), std::move(done));
}

void GatedObjects::set_fault(std::optional<FaultKind> kind) {
  const std::scoped_lock lock{mutex_};
  fault_ = kind;
}

}  // namespace fenceguard::test
