#include "adapters/zookeeper/token_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "adapters/zookeeper/wire/attempt.hpp"
#include "guard/error.hpp"
#include "guard/source/acquire_deadline.hpp"
#include "guard/source/lock_keys.hpp"
#include "guard/source/scoped_list_entry.hpp"

namespace fenceguard::zookeeper {
namespace {

using Ms = std::chrono::milliseconds;

constexpr std::size_t before_max = 10'000;

struct LockOptions {
  std::string lock_path;
  Layout layout = Layout::kazoo;
};

class ZooKeeperSource : public TokenSource, public LeaseLister, public LockKeys {
 public:
  ZooKeeperSource(const Address& address, const LockOptions& options)
      : calls_{address.root, options.lock_path, options.layout},
        sessions_{address, [this](const SessionLife& life) { leases_.lose_all(life); }} {}

  ~ZooKeeperSource() override {
    leases_.stop();
    cleaner_.stop();
    sessions_.close();
  }

  std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder, Ms ttl) override;
  std::optional<Grant> wait_acquire(const Resource& resource, const Holder& holder,
                                    const AcquireOptions& options) override;
  Renewal renew(const Claim& claim, Ms ttl) override;
  Release release(const Claim& claim) override;
  Release end(const Resource& resource) override;
  std::optional<LeaseRecord> show(const Resource& resource) override;
  std::optional<Token> token_of_key(const std::string& key) override;
  void raise(const Resource& /*resource*/, Token mark) override {
    sessions_.healed(
        [&](const ConnectionGeneration& generation) { calls_.raise(*generation.session, mark); });
  }
  Token draw() override {
    return sessions_.healed(
        [&](const ConnectionGeneration& generation) { return calls_.draw(*generation.session); });
  }
  std::optional<Token> lowest_live() override {
    return sessions_.healed(
        [&](const ConnectionGeneration& generation) { return calls_.lowest_live(*generation.session); });
  }
  LeasePage list_leases(const FenceListing& listing) override {
    return sessions_.healed(
        [&](const ConnectionGeneration& generation) { return calls_.list(*generation.session, listing); });
  }
  bool lives_by_connection() const noexcept override { return true; }
  std::stop_token lost(const Claim& claim) override { return leases_.lost(claim); }

 private:
  // A thread that waits; another that is granted the lock for the same holder calls it.
  struct Waiting {
    const Resource& resource;
    const Holder& holder;
    std::shared_ptr<Event> event = std::make_shared<Event>();
  };

  [[nodiscard]] Attempt::Parts parts() { return {sessions_, calls_, leases_, cleaner_, watcher_}; }
  [[nodiscard]] std::optional<Grant> again(const Resource& resource, const Holder& holder, Ms ttl);
  [[nodiscard]] std::optional<Ms> confirm(const HeldLease& lease, Ms ttl);
  [[nodiscard]] Release remove_entry(const std::string& path, const HeldLease* own);
  void call_same_holder(const Claim& claim);
  [[nodiscard]] bool is_still_held(const Resource& resource);
  void remember_before(const Resource& resource, const std::string& path);

  LockClient calls_;
  OrphanCleaner cleaner_{calls_};
  HeldLeases leases_{cleaner_};
  DeletionWatcher watcher_;
  SessionManager sessions_;
  std::mutex mutex_;                        // guards what follows
  std::map<Resource, std::string> before_;  // the entry that the last attempt found before it
  std::list<Waiting*> waiting_;
};

std::variant<Grant, LockBusy> ZooKeeperSource::try_acquire(const Resource& resource, const Holder& holder,
                                                           Ms ttl) {
  require_sensible_ttl(ttl);
  if (const auto grant = again(resource, holder, ttl)) return *grant;
  if (!is_still_held(resource)) {
    Attempt attempt{parts(), resource, holder, {.ttl = ttl}};
    if (const auto grant = attempt.ask()) {
      call_same_holder(grant->claim);
      return *grant;
    }
    remember_before(resource, *attempt.before());
  }
  if (const auto other = leases_.find(resource)) {
    const auto left = std::chrono::ceil<Ms>(other->expires_at - BootClock::now());
    return LockBusy{std::clamp(left, Ms{1}, ttl_max)};
  }
  // A holder that has stopped is out of the way by then.
  return LockBusy{std::min(sessions_.session_timeout(), ttl)};
}

std::optional<Grant> ZooKeeperSource::wait_acquire(const Resource& resource, const Holder& holder,
                                                   const AcquireOptions& options) {
  require_sensible_ttl(options.ttl);
  AcquireDeadline deadline{options};
  Waiting waiting{resource, holder};
  const ScopedListEntry listed{mutex_, waiting_, waiting};
  Attempt attempt{parts(), resource, holder, options};
  for (;;) {
    auto until = deadline.time();
    try {
      if (deadline.was_reached() && !sessions_.is_ready())
        throw Unavailable("the connection to ZooKeeper is lost");
      if (auto grant = again(resource, holder, options.ttl)) return grant;
      if (auto grant = attempt.ask()) {
        call_same_holder(grant->claim);
        return grant;
      }
      deadline.reached();
      if (deadline.gives_up()) return std::nullopt;
      attempt.set_when_next(waiting.event);
    } catch (const Unavailable&) {
      deadline.outlast();
      until = deadline.until(AcquireDeadline::outage_retry);
    }
    if (!waiting.event->wait(options.stop, until) && deadline.gives_up()) return std::nullopt;
  }
}

// A poll of a held lock reads, and makes no node each time: while the one is there that the last attempt
// found before it, another attempt would be behind that as well. It grants nothing.
bool ZooKeeperSource::is_still_held(const Resource& resource) {
  std::string path;
  {
    const std::scoped_lock lock{mutex_};
    const auto found = before_.find(resource);
    if (found == before_.end()) return false;
    path = found->second;
  }
  try {
    if (LockClient::is_there(*sessions_.generation().session, path)) return true;
  } catch (const Unavailable&) {
    // The attempt says what is wrong, if it still is.
  }
  const std::scoped_lock lock{mutex_};
  before_.erase(resource);
  return false;
}

void ZooKeeperSource::remember_before(const Resource& resource, const std::string& path) {
  const std::scoped_lock lock{mutex_};
  if (before_.size() >= before_max) before_.clear();
  before_.insert_or_assign(resource, path);
}

// The lease of the same holder, if the quorum still knows it.
std::optional<Grant> ZooKeeperSource::again(const Resource& resource, const Holder& holder, Ms ttl) {
  const auto lease = leases_.find(resource);
  if (!lease || lease->claim.holder != holder) return std::nullopt;
  const auto asked_at = BootClock::now();
  const auto term = confirm(*lease, ttl);
  if (!term || !leases_.extend(lease->claim, asked_at + *term, HeldLeases::Shorten::no)) {
    leases_.lose(lease->claim);
    return std::nullopt;
  }
  return Grant{lease->claim, *term, false, asked_at};
}

// The term for which the lease goes on where ttl is asked for, if its node is there. Throws Unavailable.
std::optional<Ms> ZooKeeperSource::confirm(const HeldLease& lease, Ms ttl) {
  const auto session = lease.entry.session.lock();
  if (!session || !lease.since.is_unbroken()) return std::nullopt;
  try {
    if (!calls_.confirm(*session, lease.entry.path)) return std::nullopt;
    return lease_term(*session, ttl);
  } catch (const OutcomeUnknown& fault) {
    throw Unavailable(fault.what());  // it changes nothing
  }
}

void ZooKeeperSource::call_same_holder(const Claim& claim) {
  const std::scoped_lock lock{mutex_};
  for (const auto* waiting : waiting_) {
    if (waiting->resource == claim.resource && waiting->holder == claim.holder) waiting->event->set();
  }
}

Renewal ZooKeeperSource::renew(const Claim& claim, Ms ttl) {
  require_sensible_ttl(ttl);
  const auto lease = leases_.find(claim);
  if (!lease) return Renewal::lost;
  const auto asked_at = BootClock::now();
  const auto term = confirm(*lease, ttl);
  if (term && leases_.extend(claim, asked_at + *term, HeldLeases::Shorten::yes)) return Renewal::renewed;
  leases_.lose(claim);
  return Renewal::lost;
}

Release ZooKeeperSource::release(const Claim& claim) {
  const auto lease = leases_.release(claim);
  if (!lease) return Release::not_held;
  try {
    return remove_entry(lease->entry.path, &*lease);
  } catch (const Error&) {
    cleaner_.remove(lease->entry);
    throw;
  }
}

Release ZooKeeperSource::end(const Resource& resource) {
  const auto lock = calls_.lock_of(resource);
  const auto head = sessions_.healed(
      [&](const ConnectionGeneration& generation) { return calls_.head(*generation.session, lock); });
  return head ? remove_entry(head->entry, nullptr) : Release::not_held;
}

// No other node ever has this path, so it may be asked for again where the answer was lost. own: whose it is,
// if it is ours; once that session is over, the node was lost with it, and once its connection broke before
// anything was sent, the lease was lost by that.
Release ZooKeeperSource::remove_entry(const std::string& path, const HeldLease* own) {
  bool may_be_done = false;
  return sessions_.healed([&](const ConnectionGeneration& generation) {
    if (own != nullptr && generation.session != own->entry.session.lock()) return Release::not_held;
    if (own != nullptr && !may_be_done && !own->since.is_unbroken()) {
      cleaner_.remove(own->entry);
      return Release::not_held;
    }
    try {
      return LockClient::remove(*generation.session, path) || may_be_done ? Release::released
                                                                          : Release::not_held;
    } catch (const OutcomeUnknown&) {
      may_be_done = true;
      throw;
    }
  });
}

std::optional<LeaseRecord> ZooKeeperSource::show(const Resource& resource) {
  const auto lock = calls_.lock_of(resource);
  const auto head = sessions_.healed(
      [&](const ConnectionGeneration& generation) { return calls_.head(*generation.session, lock); });
  if (!head) return std::nullopt;
  const Claim claim{resource, head->token, head->holder, std::nullopt};
  const auto own = leases_.find(claim);
  // How long another process goes on without renewing is known to that process.
  if (!own) return LeaseRecord{claim, std::nullopt};
  const auto left = std::chrono::ceil<Ms>(own->expires_at - BootClock::now());
  return LeaseRecord{claim, std::max(left, Ms{0})};
}

std::optional<Token> ZooKeeperSource::token_of_key(const std::string& key) {
  const auto slash = key.rfind('/');
  if (!key.starts_with('/') || slash == 0 || !sequence_of(key.substr(slash + 1))) {
    throw InvalidInput(fmt::format(
        "'{}' is no node of a lock in ZooKeeper, whose whole path ends as in /GUID__lock__0000000007 or "
        "/_c_GUID-lock-0000000007",
        key));
  }
  const auto head = sessions_.healed([&](const ConnectionGeneration& generation) {
    return calls_.head(*generation.session, key.substr(0, slash));
  });
  if (!head || head->entry != key) return std::nullopt;
  return head->token;
}

Layout layout_of(const std::string& text) {
  if (text == "kazoo") return Layout::kazoo;
  if (text == "curator") return Layout::curator;
  throw InvalidInput(fmt::format("?layout of a zookeeper: URL is kazoo or curator, and this is '{}'", text));
}

}  // namespace

std::unique_ptr<TokenSource> open_source(const Url& url) {
  const auto address = address_of(url, {"layout", "lock_path"});
  LockOptions options;
  for (const auto& [name, value] : url.parameters) {
    if (name == "lock_path" && value.empty()) {
      throw InvalidInput("?lock_path of a zookeeper: URL is empty; it reads /their/%s");
    }
    if (name == "lock_path") options.lock_path = value;
    if (name == "layout") options.layout = layout_of(value);
  }
  return std::make_unique<ZooKeeperSource>(address, options);
}

}  // namespace fenceguard::zookeeper
