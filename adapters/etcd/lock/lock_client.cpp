#include "adapters/etcd/lock/lock_client.hpp"

#include <algorithm>
#include <random>

#include "adapters/etcd/wire/errors.hpp"

namespace fenceguard::etcd {
namespace {

constexpr int attempts_max = 16;
constexpr std::size_t holders_max = 65'536;
constexpr std::int64_t no_term = -1;

// Chosen here and not by etcd, so that a lease whose answer was lost can be asked for again.
std::int64_t random_id() {
  std::random_device random;
  const auto id = (static_cast<std::uint64_t>(random()) << 32 | random()) >> 1;
  return std::max<std::int64_t>(static_cast<std::int64_t>(id), 1);
}

// For what does the same however often it is done. on_lost is called where the first answer did not come:
// then the first request may take effect late. Unknown where the second has no answer either, even where it
// was certainly not done.
template <class Call, class OnLost>
auto ask_again_once(Call call, OnLost on_lost) {
  try {
    return call();
  } catch (const OutcomeUnknown&) {
    on_lost();
  }
  try {
    return call();
  } catch (const Error& fault) {
    throw OutcomeUnknown(fault.what());
  }
}

template <class Call>
auto ask_again_once(Call call) {
  return ask_again_once(call, [] {});
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

// The last two of the queue, the last first.
Op last_two(const std::string& lock) {
  auto op = get_all(lock);
  op.sort = Op::Sort::by_create_revision_descending;
  op.limit = 2;
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

// REQUIRES: created is set. Under a spare lease no key of this ask can be there before it was put: a restored
// snapshot has brought it back, and it goes with the lease.
void require_new(const LockClient::QueuePosition& position) {
  if (position.term) throw MissingLease("etcd: there is an older key under the lease; try again");
}

}  // namespace

LockClient::LockClient(const Address& address, const std::string& lock_key)
    : client_{address}, lock_name_{address.prefix, lock_key}, offset_{address.prefix} {}

EtcdLease LockClient::new_lease(Ms ttl) {
  const auto id = random_id();
  const auto made_at = BootClock::now();
  const auto lease = nothing_granted([&] { return ask_again_once([&] { return client_.grant(id, ttl); }); });
  if (lease.ttl <= Ms{0}) throw Unavailable("etcd: a lease ran out as it was granted; try again");
  return {id, lease.ttl, std::chrono::ceil<std::chrono::seconds>(ttl), made_at, true};
}

bool LockClient::drop_lease(const EtcdLease& lease) noexcept {
  if (!lease.is_own()) return false;
  try {
    (void)client_.revoke(lease.id);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void LockClient::keep_or_drop(const EtcdLease& lease) noexcept {
  if (!pool_.put(lease)) drop_lease(lease);
}

LockClient::QueueStatus LockClient::ask(const Ask& ask) {
  require_sensible_ttl(ask.ttl);
  if (!ask.waits) {
    if (const auto lease = lease_of_last_holder(ask)) return {{}, {}, {}, 0, *lease};
  }
  if (auto status = ask_under_spare(ask)) return *std::move(status);
  const auto asked_at = BootClock::now();
  const auto lease = new_lease(ask.ttl);
  return ask_under(ask,
                   {ask.resource, ask.holder, lock_name_.key_of(ask.resource, lease.id), lease, asked_at});
}

// Nothing: there is no spare lease that lives, or it was of no use, and no key of ours is under it.
std::optional<LockClient::QueueStatus> LockClient::ask_under_spare(const Ask& ask) {
  const auto asked_at = BootClock::now();
  const auto lease = pool_.take(ask.ttl);
  if (!lease) return std::nullopt;
  LeaseAnswer alive;
  try {
    alive = nothing_granted([&] { return ask_again_once([&] { return client_.keep_alive(lease->id); }); });
  } catch (const Error&) {
    (void)pool_.put(*lease);
    throw;
  }
  // The full time to live again, or none at all.
  if (alive.ttl < ask.ttl) return std::nullopt;
  QueuePosition position{ask.resource, ask.holder, lock_name_.key_of(ask.resource, lease->id), *lease,
                         asked_at};
  position.term = alive.term;
  try {
    return ask_under(ask, std::move(position));
  } catch (const Unavailable&) {
    return std::nullopt;
  }
}

LockClient::QueueStatus LockClient::ask_under(const Ask& ask, QueuePosition position) {
  try {
    auto status = try_lock(ask, position);
    const bool is_used = status.position || (status.grant && status.grant->is_new);
    if (is_used) return status;
    if (position.created == 0)
      keep_or_drop(position.lease);
    else
      drop_lease(position.lease);
    return status;
  } catch (const OutcomeUnknown& unknown) {
    // Without its lease no key of ours is there, and none can be put any more.
    if (!drop_lease(position.lease)) throw;
    throw Unavailable(unknown.what());
  } catch (const Unavailable& fault) {
    if (!drop_lease(position.lease) && position.created != 0) throw OutcomeUnknown(fault.what());
    throw;
  } catch (const std::exception&) {
    drop_lease(position.lease);
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

LockClient::QueueStatus LockClient::try_lock(const Ask& ask, QueuePosition& position) {
  auto offset = offset_.known();
  for (int i = 0; i < attempts_max; ++i) {
    const auto answer = take_if_free(ask, position, offset);
    std::optional<Token> token;
    if (answer.succeeded) {
      position.created = answer.revision;
      token = token_at(answer.revision, offset.value);
    } else {
      offset = offset_.learn(answer.answers.at(0));
      const auto& own = answer.answers.at(2).found;
      if (own.empty()) {
        const auto& line = answer.answers.at(1).found;
        if (line.empty()) continue;  // the offset was not as known
        const QueueEntry first{line.front()};
        if (first.holder == ask.holder) {
          if (auto grant = same_holder(position, first, ask.ttl)) return {std::move(grant), {}, {}, 0, 0};
          continue;  // its lease has just ended
        }
        if (ask.waits) return enqueue(ask, position);
        remember_holder(ask.resource, first);
        return {{}, {}, {}, 0, first.key.lease};
      }
      position.created = own.front().create_revision;
      require_new(position);
      token = QueueEntry{own.front()}.token(0);
    }
    auto grant = granted(position, *token, answer.term);
    if (!grant) throw MissingLease("etcd: a lease ran out as it was granted; try again");
    return {std::move(grant), {}, {}, 0, 0};
  }
  throw Unavailable("etcd: the namespace's offset changes all the time; try again");
}

// An answer that was lost is asked for again, and the second request finds the key of the first. Not so under
// a spare lease, where a key that is found may be older, see require_new().
TxnAnswer LockClient::put_key(QueuePosition& position, const Txn& txn) {
  if (position.term) return client_.txn(txn);
  return ask_again_once([&] { return client_.txn(txn); }, [&] { position.lease.is_reusable = false; });
}

TxnAnswer LockClient::take_if_free(const Ask& ask, QueuePosition& position, const Offset::Known& offset) {
  const auto lock = lock_name_.of(ask.resource);
  (void)token_at(1, offset.value);
  Txn txn{{nothing_in(lock), offset_.is(offset)},
          {put(position.key, granted_value(ask.holder, offset.value), position.lease.id)},
          {offset_.get(), first_of(lock), get(position.key)}};
  for (auto& op : lock_name_.registration()) txn.then.push_back(std::move(op));
  return put_key(position, txn);
}

// However long the queue is, its two ends are all that is asked for.
LockClient::QueueStatus LockClient::enqueue(const Ask& ask, QueuePosition& position) {
  const auto lock = lock_name_.of(ask.resource);
  Txn txn{{is_absent(position.key)},
          {put(position.key, waiting_value(ask.holder), position.lease.id), last_two(lock), first_of(lock)},
          {get(position.key)}};
  for (auto& op : lock_name_.registration()) txn.then.push_back(std::move(op));
  const auto answer = put_key(position, txn);
  if (!answer.succeeded) {
    position.created = answer.answers.at(0).found.at(0).create_revision;
    require_new(position);
    return look(position);
  }
  position.created = answer.revision;
  const auto& ends = answer.answers.at(1).found;
  const QueueEntry first{answer.answers.at(2).found.at(0)};
  // The turn is ours, or our holder's, as the look finds.
  if (ends.size() < 2 || first.holder == ask.holder) return look(position);
  return {{}, position, ends.at(1).key, answer.revision + 1, first.key.lease};
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

// term: of the transaction that granted it. A keep-alive before it may have been another leader's: the term
// must not begin with that one. Nothing: the lease is lost. The grant is remembered last, since from then on
// another call of the same holder may release it, and the lease is no longer this one's to end.
std::optional<Grant> LockClient::granted(const QueuePosition& position, Token token, std::int64_t term) {
  const Claim claim{position.resource, token, position.holder, {}};
  Grant grant{claim, position.lease.ttl, true, position.asked_at};
  if (position.term && position.term != term) {
    try {
      const auto renewed = renew(claim, grant.ttl);
      if (!renewed) return std::nullopt;
      grant.ttl = *renewed;
    } catch (const Unavailable& fault) {
      throw OutcomeUnknown(fault.what());  // the lock is taken
    }
  }
  remember(claim, position);
  return grant;
}

LockClient::QueueStatus LockClient::look(const QueuePosition& position) {
  auto offset = offset_.known();
  for (int i = 0; i < attempts_max; ++i) {
    auto mine = position;
    mine.asked_at = BootClock::now();
    const auto alive = nothing_granted(
        [&] { return client_.keep_alive(position.lease.id, hedging_of(position.lease.ttl)); });
    mine.term = alive.ttl > Ms{0} ? alive.term : no_term;
    const auto answer = take_lock(position.key, position.created, position, offset);
    if (answer.succeeded)
      return {granted(mine, token_at(position.created, offset.value), answer.term), {}, {}, 0, 0};
    const auto& found = answer.answers.at(0).found;
    if (found.empty() || found.front().create_revision != position.created) return {};
    const QueueEntry own{found.front()};
    // By the same step, whose answer was lost, or by another call of its holder.
    if (own.is_granted()) return {granted(mine, own.token(0), answer.term), {}, {}, 0, 0};
    offset = offset_.learn(answer.answers.at(1));
    const auto& before = answer.answers.at(2).found;
    if (before.empty()) continue;  // the offset was not as known
    const QueueEntry first{answer.answers.at(3).found.at(0)};
    if (first.holder == position.holder) {
      if (auto grant = same_holder(mine, first, position.lease.ttl)) return {std::move(grant), {}, {}, 0, 0};
      continue;
    }
    return {{}, position, before.front().key, answer.revision + 1, first.key.lease};
  }
  throw Unavailable("etcd: the namespace's offset changes all the time; try again");
}

bool LockClient::keep(const QueuePosition& position) {
  try {
    return client_.keep_alive(position.lease.id, hedging_of(position.lease.ttl)).ttl > Ms{0};
  } catch (const Error&) {
    return true;  // no answer proves nothing; the next look tells
  }
}

bool LockClient::leave(const QueuePosition& position) noexcept {
  try {
    const auto answer = client_.txn(
        {{created_at(position.key, position.created), value_is(position.key, waiting_value(position.holder))},
         {etcd::remove(position.key)},
         {get(position.key), marker()}});
    if (!answer.succeeded && !answer.answers.at(0).found.empty()) return false;
    if (answer.succeeded)
      keep_or_drop(position.lease);
    else if (!position.lease.is_reusable)
      drop_lease(position.lease);  // a late request may put a key under it; otherwise it runs out
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

LockClient::Ms LockClient::remaining(std::int64_t lease) {
  if (lease == 0) return ttl_max;  // a key without one stays until it is removed
  return std::max(client_.time_to_live(lease).ttl, Ms{1});
}

}  // namespace fenceguard::etcd
