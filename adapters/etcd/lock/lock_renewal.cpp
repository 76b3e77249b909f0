// The calls of the token source for a lease that was granted.

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "adapters/etcd/lock/lock_client.hpp"
#include "guard/error.hpp"

namespace fenceguard::etcd {
namespace {

constexpr int attempts_max = 16;
constexpr std::chrono::milliseconds heartbeat{100};  // of etcd's leader, where nothing else was set
constexpr std::size_t places_max = 65'536;
constexpr std::int64_t keys_at_once = 1'000;

}  // namespace

LockClient::Name LockClient::name_of(const Claim& claim) {
  return {claim.resource.name(), claim.token.value(), claim.holder.id()};
}

void LockClient::remember(const Claim& claim, const QueuePosition& position) {
  const std::scoped_lock lock{mutex_};
  // Of leases that were not released; whichever is dropped can be found again.
  if (places_.size() >= places_max) places_.erase(places_.begin());
  auto& place = places_.try_emplace(name_of(claim), position).first->second;
  // What was found by reading does not tell whose the lease is.
  if (position.lease.is_own()) place = position;
}

std::optional<LockClient::QueuePosition> LockClient::extract(const Claim& claim) {
  const std::scoped_lock lock{mutex_};
  auto node = places_.extract(name_of(claim));
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

Op LockClient::marker() const {
  return etcd::remove(client_.address().prefix + "/none");
}

TxnAnswer LockClient::read(std::vector<Op> ops, std::optional<Hedging> hedging) {
  try {
    return client_.txn({{}, std::move(ops), {marker()}}, hedging);
  } catch (const OutcomeUnknown& unknown) {
    throw Unavailable(unknown.what());  // it would have changed nothing
  }
}

Op LockClient::first_of(const std::string& lock) const {
  auto op = get_all(lock);
  op.sort = Op::Sort::by_create_revision;
  op.limit = 1;
  return op;
}

std::optional<LockClient::QueuePosition> LockClient::place_of(const Claim& claim,
                                                              std::optional<Hedging> hedging) {
  {
    const std::scoped_lock lock{mutex_};
    if (const auto known = places_.find(name_of(claim)); known != places_.end()) return known->second;
  }
  const auto answer = read({first_of(lock_name_.of(claim.resource))}, hedging);
  const auto& found = answer.answers.at(0).found;
  if (found.empty()) return std::nullopt;
  const QueueEntry first{found.front()};
  if (!first.is_granted() || first.holder != claim.holder || first.token(0) != claim.token)
    return std::nullopt;
  QueuePosition position{claim.resource, claim.holder, first.key.key, {}, {}, first.key.create_revision};
  position.lease.id = first.key.lease;
  remember(claim, position);
  return position;
}

std::vector<Compare> LockClient::holds(const QueuePosition& position, const Claim& claim) const {
  const auto offset = claim.token.value() - position.created;
  return {created_at(position.key, position.created),
          value_is(position.key, granted_value(claim.holder, offset)),
          {Compare::Target::lease, Compare::Is::equal, position.key, {}, position.lease.id}};
}

// A keep-alive is answered by a member that takes itself for the leader. That it was the leader is known
// where the transaction after it was done in the same term of raft: there is one leader to a term, and it led
// still. All of it may be done again, so that a member that hangs costs a part of the term and not the lease.
std::optional<LockClient::Ms> LockClient::renew(const Claim& claim, Ms ttl) {
  require_sensible_ttl(ttl);
  const auto hedging = hedging_of(ttl);
  std::optional<std::int64_t> term_without;  // of raft, in which the lease was said to be gone
  for (int i = 0; i < attempts_max; ++i) {
    const auto position = place_of(claim, hedging);
    if (!position) return std::nullopt;
    const auto alive = client_.keep_alive(position->lease.id, hedging);
    if (alive.ttl > Ms{0} && alive.ttl < ttl) {
      if (auto longer = lengthen(claim, *position, ttl)) return longer;
      continue;
    }
    const auto answer = client_.txn({holds(*position, claim), {}, {marker()}}, hedging);
    if (answer.succeeded && alive.ttl > Ms{0} && alive.term == answer.term) return alive.ttl;
    // What is known of it may be outdated, or else the leader has changed.
    if (!answer.succeeded || alive.ttl <= Ms{0}) forget(claim);
    if (!answer.succeeded) continue;
    if (alive.ttl <= Ms{0}) {
      // Its key is there yet, but within one term no member brings a lease back.
      if (term_without == answer.term) return std::nullopt;
      term_without = answer.term;
    }
    std::this_thread::sleep_for(heartbeat);
  }
  throw OutcomeUnknown("etcd: whether the lease is renewed is not known: the leader changes all the time");
}

// A lease of etcd cannot be lengthened, so that a longer one takes its place, at the same key.
std::optional<LockClient::Ms> LockClient::lengthen(const Claim& claim, QueuePosition position, Ms ttl) {
  const auto lease = new_lease(ttl);
  const auto offset = claim.token.value() - position.created;
  TxnAnswer answer;
  forget(claim);
  try {
    answer = client_.txn(
        {holds(position, claim), {put(position.key, granted_value(claim.holder, offset), lease.id)}, {}});
  } catch (const OutcomeUnknown&) {
    throw;  // the key may live by the new lease already
  } catch (const Error&) {
    drop_lease(lease);
    throw;
  }
  if (!answer.succeeded) {
    drop_lease(lease);
    return std::nullopt;
  }
  drop_lease(position.lease);
  position.lease = lease;
  remember(claim, position);
  return lease.ttl;
}

// It may be sent any number of times: the key of a later grant under the same lease has another create
// revision.
TxnAnswer LockClient::remove_key(const QueuePosition& position, const Claim& claim) {
  const Txn removal{holds(position, claim), {etcd::remove(position.key)}, {}};
  try {
    return client_.txn(removal);
  } catch (const OutcomeUnknown& unknown) {
    try {
      if (auto answer = client_.txn(removal); answer.succeeded) return answer;
    } catch (const Error&) {
      // Then the end of the lease frees the lock.
    }
    // No waiter may be delayed by a lease that its holder has given up. No other grant lives by it.
    drop_lease(position.lease);
    throw OutcomeUnknown(unknown.what());
  }
}

Release LockClient::release(const Claim& claim) {
  for (int i = 0; i < attempts_max; ++i) {
    auto position = extract(claim);
    if (!position) {
      if (!place_of(claim)) return Release::not_held;
      continue;  // it is remembered now, unless another call has taken it
    }
    try {
      if (!remove_key(*position, claim).succeeded) continue;
    } catch (const Unavailable&) {
      remember(claim, *position);
      throw;
    }
    keep_or_drop(position->lease);
    return Release::released;
  }
  throw Unavailable("etcd: the lease changes all the time; try again");
}

Release LockClient::end(const Resource& resource) {
  const auto lock = lock_name_.of(resource);
  for (int i = 0; i < attempts_max; ++i) {
    const auto found = read({first_of(lock)}).answers.at(0).found;
    if (found.empty()) return Release::not_held;
    const QueueEntry first{found.front()};
    const auto answer = client_.txn(
        {{created_at(first.key.key, first.key.create_revision)}, {etcd::remove(first.key.key)}, {}});
    // Its lease is that of the client which made it.
    if (answer.succeeded) return Release::released;
  }
  throw Unavailable("etcd: the lock changes hands all the time; try again");
}

std::optional<LeaseRecord> LockClient::show(const Resource& resource) {
  const auto answer = read({first_of(lock_name_.of(resource)), offset_.get()});
  const auto& found = answer.answers.at(0).found;
  if (found.empty()) return std::nullopt;
  const auto offset = offset_.learn(answer.answers.at(1));
  const QueueEntry first{found.front()};
  const Claim claim{resource, first.token(offset.value), first.holder.value_or(Holder{}), {}};
  return LeaseRecord{claim, remaining(first.key.lease)};
}

std::optional<Token> LockClient::token_of_key(const std::string& key) {
  const auto slash = key.rfind('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == key.size())
    throw InvalidInput(fmt::format("'{}' is no key of a lock in etcd, which reads NAME/LEASE", key));
  const auto answer = read({first_of(key.substr(0, slash + 1)), offset_.get()});
  const auto& found = answer.answers.at(0).found;
  if (found.empty() || found.front().key != key) return std::nullopt;
  return QueueEntry{found.front()}.token(offset_.learn(answer.answers.at(1)).value);
}

// The keys are not in the order of the resources, whose slashes are encoded, so all of them are read.
std::map<Resource, KeyValue> LockClient::heads_of(const FenceListing& listing) {
  std::map<Resource, KeyValue> heads;
  auto range = lock_name_.all_of(listing.prefix);
  range.limit = keys_at_once;
  for (bool has_more = true; has_more;) {
    auto answer = client_.range(range);
    if (answer.count > list_keys_max) {
      throw Unavailable(
          fmt::format("leases are found by a look at every key of the locks in etcd, and there are {} and "
                      "more, more than {}: list those of a longer prefix, or ask for one by its name",
                      answer.count, list_keys_max));
    }
    has_more = answer.has_more && !answer.found.empty();
    if (has_more) range.key = answer.found.back().key + '\0';
    for (auto& found : answer.found) {
      auto resource = lock_name_.resource_of(found.key);
      if (!resource || !listing.names(*resource)) continue;
      const auto [head, is_first] = heads.try_emplace(*std::move(resource), found);
      if (!is_first && found.create_revision < head->second.create_revision) head->second = std::move(found);
    }
  }
  return heads;
}

LeasePage LockClient::list(const FenceListing& listing) {
  const auto offset = offset_.learn(client_.range(offset_.get()));
  LeasePage page;
  for (auto& [resource, head] : heads_of(listing)) {
    page.has_more = page.entries.size() == listing.limit;
    if (page.has_more) break;
    const auto lease = head.lease;
    const Claim claim{resource, QueueEntry{std::move(head)}.token(offset.value), {}, {}};
    page.entries.push_back({claim, remaining(lease)});
  }
  return page;
}

}  // namespace fenceguard::etcd
