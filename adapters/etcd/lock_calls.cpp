#include "adapters/etcd/lock_calls.hpp"

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

// For what grants no lock to anybody, whatever becomes of it: whoever hears that the outcome is not known may
// give back a lease that the same holder has had all along.
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

std::vector<Contender> contenders_in(const OpAnswer& answer) {
  return {answer.found.begin(), answer.found.end()};
}

}  // namespace

// All contenders of a lock, in their order, after an attempt to be one of them.
struct LockCalls::Line {
  std::vector<Contender> contenders;
  std::int64_t revision = 0;
  Offset::Known offset;
};

LockCalls::LockCalls(const Address& address, const std::string& lock_key)
    : client_{address}, lock_name_{address.prefix, lock_key}, offset_{address.prefix} {}

LeaseAnswer LockCalls::new_lease(Ms ttl) {
  const auto id = random_id();
  auto lease = nothing_granted([&] { return ask_again_once([&] { return client_.grant(id, ttl); }); });
  if (lease.ttl <= Ms{0}) throw Unavailable("etcd: a lease ran out as it was granted; try again");
  lease.id = id;
  return lease;
}

bool LockCalls::drop_lease(std::int64_t lease) noexcept {
  try {
    (void)client_.revoke(lease);
    return true;
  } catch (const std::exception&) {
    return false;  // left to its time to live
  }
}

LockCalls::Standing LockCalls::ask(const Ask& ask) {
  require_sensible_ttl(ask.ttl);
  if (!ask.waits) {
    if (const auto lease = lease_of_last_holder(ask)) return {{}, {}, {}, 0, *lease};
  }
  const auto lock = lock_name_.of(ask.resource);
  const auto asked_at = BootClock::now();
  const auto lease = new_lease(ask.ttl);
  try {
    auto standing = stand(
        ask, {ask.resource, ask.holder, lock + lease_in_key(lease.id), 0, lease.id, lease.ttl, asked_at});
    const bool is_used = standing.place || (standing.grant && standing.grant->is_new);
    if (!is_used) drop_lease(lease.id);
    return standing;
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
std::optional<std::int64_t> LockCalls::lease_of_last_holder(const Ask& ask) {
  KeyValue last;
  {
    const std::scoped_lock lock{mutex_};
    const auto known = holders_.find(ask.resource.name());
    if (known == holders_.end()) return std::nullopt;
    last = known->second;
  }
  const auto found = client_.range(get(last.key)).found;
  if (!found.empty() && found.front().create_revision == last.create_revision &&
      Contender{found.front()}.holder != ask.holder)
    return found.front().lease;
  const std::scoped_lock lock{mutex_};
  holders_.erase(ask.resource.name());
  return std::nullopt;
}

void LockCalls::remember_holder(const Resource& resource, const Contender& first) {
  const std::scoped_lock lock{mutex_};
  if (holders_.size() >= holders_max) holders_.erase(holders_.begin());
  holders_.insert_or_assign(resource.name(), first.key);
}

LockCalls::Standing LockCalls::stand(const Ask& ask, Place place) {
  auto offset = offset_.known();
  bool lines_up = false;
  for (int i = 0; i < attempts_max; ++i) {
    const auto line = lines_up ? line_up(ask, place) : take_if_free(ask, place, offset);
    offset = line.offset;
    if (line.contenders.empty()) continue;  // the offset was not as known
    const auto& first = line.contenders.front();
    const auto own = std::ranges::find(line.contenders, place.key,
                                       [](const Contender& contender) { return contender.key.key; });
    if (own != line.contenders.end()) place.created = own->key.create_revision;
    if (own == line.contenders.begin()) {
      if (!own->is_granted()) return look(place);
      return {granted(place, own->token(0)), {}, {}, 0, 0};
    }
    if (first.holder == ask.holder) {
      if (auto grant = same_holder(place, first, ask.ttl)) return {std::move(grant), {}, {}, 0, 0};
      continue;  // its lease has just ended
    }
    if (own != line.contenders.end())
      return {{}, std::move(place), std::prev(own)->key.key, line.revision + 1, first.key.lease};
    if (!ask.waits) {
      remember_holder(ask.resource, first);
      return {{}, {}, {}, 0, first.key.lease};
    }
    lines_up = true;
  }
  throw Unavailable("etcd: the namespace's offset changes all the time; try again");
}

std::vector<Op> LockCalls::put_in_line(const Place& place, std::string value) const {
  std::vector<Op> ops{put(place.key, std::move(value), place.lease), line_of(lock_name_.of(place.resource))};
  for (auto& op : lock_name_.registration()) ops.push_back(std::move(op));
  return ops;
}

LockCalls::Line LockCalls::take_if_free(const Ask& ask, const Place& place, const Offset::Known& offset) {
  const auto lock = lock_name_.of(ask.resource);
  (void)token_at(1, offset.value);
  // Where its answer was lost, the second one finds the key of the first.
  const auto take = put_in_line(place, granted_value(ask.holder, offset.value));
  const auto answer = ask_again_once([&] {
    return client_.txn({{nothing_in(lock), offset_.is(offset)}, take, {offset_.get(), line_of(lock)}});
  });
  return {contenders_in(answer.answers.at(1)), answer.revision,
          answer.succeeded ? offset : offset_.learn(answer.answers.at(0))};
}

LockCalls::Line LockCalls::line_up(const Ask& ask, const Place& place) {
  const auto lock = lock_name_.of(ask.resource);
  const auto stand_last = put_in_line(place, waiting_value(ask.holder));
  const auto answer = ask_again_once([&] {
    return client_.txn({{is_absent(place.key)}, stand_last, {offset_.get(), line_of(lock)}});
  });
  return {contenders_in(answer.answers.at(1)), answer.revision, offset_.known()};
}

// The step in which a place becomes a grant, with the present offset, so that a raise made while it waited
// lifts its token too. Only one that waits: what was granted by another call of its holder stays as it is.
TxnAnswer LockCalls::take_turn(const std::string& key, std::int64_t created, const Place& asking,
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

std::optional<Grant> LockCalls::same_holder(const Place& asking, const Contender& first, Ms ttl) {
  auto token = first.token(0);
  if (!first.is_granted()) {
    // It waited with another call, which has not seen yet that its turn has come.
    const auto offset = offset_.known();
    const auto answer =
        nothing_granted([&] { return take_turn(first.key.key, first.key.create_revision, asking, offset); });
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

Grant LockCalls::granted(const Place& place, Token token) {
  const Claim claim{place.resource, token, place.holder, {}};
  remember(claim, place);
  return {claim, place.ttl, true, place.asked_at};
}

// alive: of a keep-alive before answer. It may have been another leader's: the term must not begin with it.
std::optional<Grant> LockCalls::granted_after(const LeaseAnswer& alive, const TxnAnswer& answer,
                                              const Place& place, Token token) {
  auto grant = granted(place, token);
  if (alive.ttl > Ms{0} && alive.term == answer.term) return grant;
  const auto renewed = renew(grant.claim, place.ttl);
  if (!renewed) return std::nullopt;
  grant.ttl = *renewed;
  return grant;
}

LockCalls::Standing LockCalls::look(const Place& place) {
  auto offset = offset_.known();
  for (int i = 0; i < attempts_max; ++i) {
    auto mine = place;
    mine.asked_at = BootClock::now();
    const auto alive = client_.keep_alive(place.lease, hedging_of(place.ttl));
    const auto answer = take_turn(place.key, place.created, place, offset);
    if (answer.succeeded)
      return {granted_after(alive, answer, mine, token_at(place.created, offset.value)), {}, {}, 0, 0};
    const auto own = contenders_in(answer.answers.at(0));
    if (own.empty() || own.front().key.create_revision != place.created) return {};
    // By the same step, whose answer was lost, or by another call of its holder.
    if (own.front().is_granted())
      return {granted_after(alive, answer, mine, own.front().token(0)), {}, {}, 0, 0};
    offset = offset_.learn(answer.answers.at(1));
    const auto& before = answer.answers.at(2).found;
    if (before.empty()) continue;  // the offset was not as known
    const Contender first{answer.answers.at(3).found.at(0)};
    if (first.holder == place.holder) {
      if (auto grant = same_holder(mine, first, place.ttl)) return {std::move(grant), {}, {}, 0, 0};
      continue;
    }
    return {{}, place, before.front().key, answer.revision + 1, first.key.lease};
  }
  throw Unavailable("etcd: the namespace's offset changes all the time; try again");
}

bool LockCalls::keep(const Place& place) {
  try {
    return client_.keep_alive(place.lease, hedging_of(place.ttl)).ttl > Ms{0};
  } catch (const Error&) {
    return true;  // no answer proves nothing; the next look tells
  }
}

void LockCalls::leave(const Place& place) noexcept {
  try {
    const auto answer = client_.txn({{value_is(place.key, waiting_value(place.holder))},
                                     {etcd::remove(place.key)},
                                     {get(place.key), marker()}});
    if (answer.succeeded || answer.answers.at(0).found.empty()) drop_lease(place.lease);
  } catch (const std::exception&) {
    // Left to its time to live.
  }
}

LockCalls::Ms LockCalls::remaining(std::int64_t lease) {
  if (lease == 0) return ttl_max;  // a key without one stays until it is removed
  return std::max(client_.time_to_live(lease).ttl, Ms{1});
}

}  // namespace fenceguard::etcd
