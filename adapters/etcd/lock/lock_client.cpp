#include "adapters/etcd/lock/lock_client.hpp"

#include <algorithm>
#include <random>

#include "guard/error.hpp"

namespace fenceguard::etcd {
namespace {

constexpr int attempts_max = 16;
constexpr std::size_t holders_max = 65'536;

// Chosen here and not by etcd, so that a lease whose answer was lost can be asked for again.
std::int64_t random_id() {
  std::random_device random;
  const auto id = (static_cast<std::uint64_t>(random()) << 32 | random()) >> 1;
  return std::max<std::int64_t>(static_cast<std::int64_t>(id), 1);
}

// For what does the same however often it is done.
template <class Call>
auto ask_again_once(Call call) {
  try {
    return call();
  } catch (const OutcomeUnknown&) {
    return call();
  }
}

// For calls that grant no lock, whatever their outcome: a caller that is told of an unknown outcome may give
// back a lease that the same holder has had all along.
template <class Call>
auto nothing_granted(Call call) {
  try {
    return call();
  } catch (const OutcomeUnknown& unknown) {
    throw Unavailable(unknown.what());
  }
}

Op line_of(const std::string& lock) {
  auto op = get_all(lock);
  op.sort = Op::Sort::by_create_revision;
  return op;
}

Op last_before(const std::string& lock, std::int64_t revision) {
  auto op = get_all(lock);
  op.sort = Op::Sort::by_create_revision_descending;
  op.create_revision_max = revision - 1;
  op.limit = 1;
  return op;
}

Compare nothing_before(const std::string& lock, std::int64_t revision) {
  return {
      Compare::Target::create_revision, Compare::Is::greater, lock, {}, revision - 1, end_of_prefix(lock)};
}

Compare nothing_in(const std::string& lock) {
  return {Compare::Target::create_revision, Compare::Is::equal, lock, {}, 0, end_of_prefix(lock)};
}

std::vector<QueueEntry> contenders_in(const OpAnswer& answer) {
  return {answer.found.begin(), answer.found.end()};
}

}  // namespace

// All contenders of a lock, in their order, after an attempt to be one of them.
struct LockClient::WaitQueue {
  std::vector<QueueEntry> contenders;
  std::int64_t revision = 0;
  Offset::Known offset;
};

LockClient::LockClient(const Address& address, const std::string& lock_key)
    : client_{address}, lock_name_{address.prefix, lock_key}, offset_{address.prefix} {}

LeaseAnswer LockClient::new_lease(Ms ttl) {
  const auto id = random_id();
  auto lease = nothing_granted([&] { return ask_again_once([&] { return client_.grant(id, ttl); }); });
  if (lease.ttl <= Ms{0}) throw Unavailable("etcd: a lease ran out as it was granted; try again");
  lease.id = id;
  return lease;
}

bool LockClient::drop_lease(std::int64_t lease) noexcept {
  try {
    (void)client_.revoke(lease);
    return true;
  } catch (const std::exception&) {
    return false;  // left to its time to live
  }
}

LockClient::QueueStatus LockClient::ask(const Ask& ask) {
  require_sensible_ttl(ask.ttl);
  if (!ask.waits) {
    if (const auto lease = lease_of_last_holder(ask)) return {{}, {}, {}, 0, *lease};
  }
  const auto lock = lock_name_.of(ask.resource);
  const auto asked_at = BootClock::now();
  const auto lease = new_lease(ask.ttl);
  try {
    auto status = try_lock(
        ask, {ask.resource, ask.holder, lock + lease_in_key(lease.id), 0, lease.id, lease.ttl, asked_at});
    const bool is_used = status.position || (status.grant && status.grant->is_new);
    if (!is_used) drop_lease(lease.id);
    return status;
  } catch (const OutcomeUnknown& unknown) {
    // Without its lease no key of ours is there, and none can be put any more.
    if (!drop_lease(lease.id)) throw;
    throw Unavailable(unknown.what());
  } catch (const std::exception&) {
    drop_lease(lease.id);
    throw;
  }
}

// A read, and so a hint: it may say that asking is useless, and never that the lock is free.
std::optional<std::int64_t> LockClient::lease_of_last_holder(const Ask& ask) {
  KeyValue last;
  {
    const std::scoped_lock lock{mutex_};
    const auto known = holders_.find(ask.resource.name());
    if (known == holders_.end()) return std::nullopt;
    last = known->second;
  }
  const auto found = client_.range(get(last.key)).found;
  if (!found.empty() && found.front().create_revision == last.create_revision &&
      QueueEntry{found.front()}.holder != ask.holder)
    return found.front().lease;
  const std::scoped_lock lock{mutex_};
  holders_.erase(ask.resource.name());
  return std::nullopt;
}

void LockClient::remember_holder(const Resource& resource, const QueueEntry& first) {
  const std::scoped_lock lock{mutex_};
  if (holders_.size() >= holders_max) holders_.erase(holders_.begin());
  holders_.insert_or_assign(resource.name(), first.key);
}

LockClient::QueueStatus LockClient::try_lock(const Ask& ask, QueuePosition position) {
  auto offset = offset_.known();
  bool lines_up = false;
  for (int i = 0; i < attempts_max; ++i) {
    const auto line = lines_up ? enqueue(ask, position) : take_if_free(ask, position, offset);
    offset = line.offset;
    if (line.contenders.empty()) continue;  // the offset was not as known
    const auto& first = line.contenders.front();
    const auto own = std::ranges::find(line.contenders, position.key,
                                       [](const QueueEntry& contender) { return contender.key.key; });
    if (own != line.contenders.end()) position.created = own->key.create_revision;
    if (own == line.contenders.begin()) {
      if (!own->is_granted()) return look(position);
      return {granted(position, own->token(0)), {}, {}, 0, 0};
    }
    if (first.holder == ask.holder) {
      if (auto grant = same_holder(position, first, ask.ttl)) return {std::move(grant), {}, {}, 0, 0};
      continue;  // its lease has just ended
    }
    if (own != line.contenders.end())
      return {{}, std::move(position), std::prev(own)->key.key, line.revision + 1, first.key.lease};
    if (!ask.waits) {
      remember_holder(ask.resource, first);
      return {{}, {}, {}, 0, first.key.lease};
    }
    lines_up = true;
  }
  throw Unavailable("etcd: the namespace's offset changes all the time; try again");
}

std::vector<Op> LockClient::enqueue_ops(const QueuePosition& position, std::string value) const {
  std::vector<Op> ops{put(position.key, std::move(value), position.lease),
                      line_of(lock_name_.of(position.resource))};
  for (auto& op : lock_name_.registration()) ops.push_back(std::move(op));
  return ops;
}

LockClient::WaitQueue LockClient::take_if_free(const Ask& ask, const QueuePosition& position,
                                               const Offset::Known& offset) {
  const auto lock = lock_name_.of(ask.resource);
  (void)token_at(1, offset.value);
  // Where its answer was lost, the second one finds the key of the first.
  const auto take = enqueue_ops(position, granted_value(ask.holder, offset.value));
  const auto answer = ask_again_once([&] {
    return client_.txn({{nothing_in(lock), offset_.is(offset)}, take, {offset_.get(), line_of(lock)}});
  });
  return {contenders_in(answer.answers.at(1)), answer.revision,
          answer.succeeded ? offset : offset_.learn(answer.answers.at(0))};
}

LockClient::WaitQueue LockClient::enqueue(const Ask& ask, const QueuePosition& position) {
  const auto lock = lock_name_.of(ask.resource);
  const auto stand_last = enqueue_ops(position, waiting_value(ask.holder));
  const auto answer = ask_again_once([&] {
    return client_.txn({{is_absent(position.key)}, stand_last, {offset_.get(), line_of(lock)}});
  });
  return {contenders_in(answer.answers.at(1)), answer.revision, offset_.known()};
}

// The step in which a queue entry becomes a grant, with the present offset, so that a raise made while it
// waited lifts its token too. Only one that waits: what was granted by another call of its holder stays as it
// is.
TxnAnswer LockClient::take_lock(const std::string& key, std::int64_t created, const QueuePosition& asking,
                                const Offset::Known& offset) {
  const auto lock = lock_name_.of(asking.resource);
  (void)token_at(created, offset.value);
  auto take = put(key, granted_value(asking.holder, offset.value));
  take.keeps_lease = true;
  return ask_again_once([&] {
    return client_.txn({{created_at(key, created), value_is(key, waiting_value(asking.holder)),
                         nothing_before(lock, created), offset_.is(offset)},
                        {take},
                        {get(key), offset_.get(), last_before(lock, created), first_of(lock)}});
  });
}

std::optional<Grant> LockClient::same_holder(const QueuePosition& asking, const QueueEntry& first, Ms ttl) {
  auto token = first.token(0);
  if (!first.is_granted()) {
    // It waited with another call, which has not seen yet that its turn has come.
    const auto offset = offset_.known();
    const auto answer =
        nothing_granted([&] { return take_lock(first.key.key, first.key.create_revision, asking, offset); });
    if (!answer.succeeded) {
      (void)offset_.learn(answer.answers.at(1));
      return std::nullopt;
    }
    token = token_at(first.key.create_revision, offset.value);
  }
  const Claim claim{asking.resource, token, asking.holder, {}};
  const auto renewed = nothing_granted([&] { return renew(claim, ttl); });
  if (!renewed) return std::nullopt;
  return Grant{claim, *renewed, false, asking.asked_at};
}

Grant LockClient::granted(const QueuePosition& position, Token token) {
  const Claim claim{position.resource, token, position.holder, {}};
  remember(claim, position);
  return {claim, position.ttl, true, position.asked_at};
}

// alive: of a keep-alive before answer. It may have been another leader's: the term must not begin with it.
std::optional<Grant> LockClient::granted_after(const LeaseAnswer& alive, const TxnAnswer& answer,
                                               const QueuePosition& position, Token token) {
  auto grant = granted(position, token);
  if (alive.ttl > Ms{0} && alive.term == answer.term) return grant;
  const auto renewed = renew(grant.claim, position.ttl);
  if (!renewed) return std::nullopt;
  grant.ttl = *renewed;
  return grant;
}

LockClient::QueueStatus LockClient::look(const QueuePosition& position) {
  auto offset = offset_.known();
  for (int i = 0; i < attempts_max; ++i) {
    auto mine = position;
    mine.asked_at = BootClock::now();
    const auto alive = client_.keep_alive(position.lease, hedging_of(position.ttl));
    const auto answer = take_lock(position.key, position.created, position, offset);
    if (answer.succeeded)
      return {granted_after(alive, answer, mine, token_at(position.created, offset.value)), {}, {}, 0, 0};
    const auto own = contenders_in(answer.answers.at(0));
    if (own.empty() || own.front().key.create_revision != position.created) return {};
    // By the same step, whose answer was lost, or by another call of its holder.
    if (own.front().is_granted())
      return {granted_after(alive, answer, mine, own.front().token(0)), {}, {}, 0, 0};
    offset = offset_.learn(answer.answers.at(1));
    const auto& before = answer.answers.at(2).found;
    if (before.empty()) continue;  // the offset was not as known
    const QueueEntry first{answer.answers.at(3).found.at(0)};
    if (first.holder == position.holder) {
      if (auto grant = same_holder(mine, first, position.ttl)) return {std::move(grant), {}, {}, 0, 0};
      continue;
    }
    return {{}, position, before.front().key, answer.revision + 1, first.key.lease};
  }
  throw Unavailable("etcd: the namespace's offset changes all the time; try again");
}

bool LockClient::keep(const QueuePosition& position) {
  try {
    return client_.keep_alive(position.lease, hedging_of(position.ttl)).ttl > Ms{0};
  } catch (const Error&) {
    return true;  // no answer proves nothing; the next look tells
  }
}

void LockClient::leave(const QueuePosition& position) noexcept {
  try {
    const auto answer = client_.txn({{value_is(position.key, waiting_value(position.holder))},
                                     {etcd::remove(position.key)},
                                     {get(position.key), marker()}});
    if (answer.succeeded || answer.answers.at(0).found.empty()) drop_lease(position.lease);
  } catch (const std::exception&) {
    // Left to its time to live.
  }
}

LockClient::Ms LockClient::remaining(std::int64_t lease) {
  if (lease == 0) return ttl_max;  // a key without one stays until it is removed
  return std::max(client_.time_to_live(lease).ttl, Ms{1});
}

}  // namespace fenceguard::etcd
