#include "adapters/etcd/lock_calls.hpp"

#include <algorithm>
#include <random>

#include "guard/error.hpp"

namespace fenceguard::etcd {
namespace {

constexpr int attempts_max = 16;

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

LockCalls::Standing LockCalls::stand(const Ask& ask, Place place) {
  auto offset = offset_.known();
  for (int i = 0; i < attempts_max; ++i) {
    const auto line = line_up(ask, place, offset);
    offset = line.offset;
    if (line.contenders.empty()) continue;  // the offset was not as known
    const auto& first = line.contenders.front();
    const auto own = std::ranges::find(line.contenders, place.key,
                                       [](const Contender& contender) { return contender.key.key; });
    if (own != line.contenders.end()) place.created = own->key.create_revision;
    if (own == line.contenders.begin()) return {granted(place, own->token(0)), {}, {}, 0, 0};
    if (first.holder == ask.holder) {
      if (auto grant = same_holder(place, first, ask.ttl)) return {std::move(grant), {}, {}, 0, 0};
      continue;  // its lease has just ended
    }
    if (own != line.contenders.end())
      return {{}, std::move(place), std::prev(own)->key.key, line.revision + 1, first.key.lease};
    if (!ask.waits) return {{}, {}, {}, 0, first.key.lease};
  }
  throw Unavailable("etcd: the namespace's offset changes all the time; try again");
}

LockCalls::Line LockCalls::line_up(const Ask& ask, const Place& place, const Offset::Known& offset) {
  const auto lock = lock_name_.of(ask.resource);
  const auto condition = ask.waits ? is_absent(place.key) : nothing_in(lock);
  const auto value = contender_value(ask.holder, offset.value);
  (void)token_at(1, offset.value);
  // Where its answer was lost, the second one finds the key of the first.
  const auto answer = ask_again_once([&] {
    return client_.txn({{condition, offset_.is(offset)},
                        {put(place.key, value, place.lease), line_of(lock)},
                        {offset_.get(), line_of(lock)}});
  });
  Line line{{}, answer.revision, answer.succeeded ? offset : offset_.learn(answer.answers.at(0))};
  for (const auto& found : answer.answers.at(1).found) line.contenders.emplace_back(found);
  return line;
}

std::optional<Grant> LockCalls::same_holder(const Place& asking, const Contender& first, Ms ttl) {
  const Claim claim{asking.resource, first.token(0), asking.holder, {}};
  const auto renewed = nothing_granted([&] { return renew(claim, ttl); });
  if (!renewed) return std::nullopt;
  return Grant{claim, *renewed, false, asking.asked_at};
}

Grant LockCalls::granted(const Place& place, Token token) {
  const Claim claim{place.resource, token, place.holder, {}};
  remember(claim, place);
  return {claim, place.ttl, true, place.asked_at};
}

LockCalls::Standing LockCalls::look(const Place& place) {
  const auto lock = lock_name_.of(place.resource);
  auto offset = offset_.known();
  for (int i = 0; i < attempts_max; ++i) {
    auto mine = place;
    mine.asked_at = BootClock::now();
    const auto alive = client_.keep_alive(place.lease);
    // Whoever waited takes the present offset, so that a raise made meanwhile lifts its token too.
    const auto answer = ask_again_once([&] {
      return client_.txn(
          {{created_at(place.key, place.created), nothing_before(lock, place.created), offset_.is(offset)},
           {[&] {
             auto op = put(place.key, contender_value(place.holder, offset.value));
             op.keeps_lease = true;
             return op;
           }()},
           {get(place.key), offset_.get(), last_before(lock, place.created), first_of(lock)}});
    });
    if (answer.succeeded) {
      auto grant = granted(mine, token_at(place.created, offset.value));
      if (alive.ttl > Ms{0} && alive.term == answer.term) return {std::move(grant), {}, {}, 0, 0};
      // The keep-alive may have been another leader's: the term must not begin with it.
      const auto renewed = renew(grant.claim, place.ttl);
      if (!renewed) return {};
      grant.ttl = *renewed;
      return {std::move(grant), {}, {}, 0, 0};
    }
    const auto& own = answer.answers.at(0).found;
    if (own.empty() || own.front().create_revision != place.created) return {};
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
    return client_.keep_alive(place.lease).ttl > Ms{0};
  } catch (const Error&) {
    return true;  // no answer proves nothing; the next look tells
  }
}

void LockCalls::leave(const Place& place) noexcept {
  drop_lease(place.lease);
}

LockCalls::Ms LockCalls::remaining(std::int64_t lease) {
  if (lease == 0) return ttl_max;  // a key without one stays until it is removed
  return std::max(client_.time_to_live(lease).ttl, Ms{1});
}

}  // namespace fenceguard::etcd
