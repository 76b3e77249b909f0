#include "adapters/etcd/guard.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "adapters/etcd/fences/claim_transaction.hpp"
#include "adapters/etcd/fences/fence_cache.hpp"
#include "adapters/etcd/fences/fence_keys.hpp"
#include "adapters/etcd/fences/fence_mark.hpp"
#include "adapters/etcd/lock/retry_budget.hpp"
#include "adapters/etcd/wire/errors.hpp"
#include "guard/error.hpp"

namespace fenceguard::etcd {
namespace {

bool writes(const Op& op) {
  return op.kind != Op::Kind::range;
}

bool any_writes(const std::vector<Op>& ops) {
  return std::ranges::any_of(ops, writes);
}

std::vector<Claim> without_sequences(std::span<const Claim> claims) {
  std::vector<Claim> copies;
  for (const auto& claim : claims) copies.push_back(claim.without_sequence());
  return copies;
}

WriteResult single(WriteAllResult&& all) {
  return {std::move(all.rulings.front()), all.compares_held, std::move(all.answers)};
}

}  // namespace

Guard::Guard(Client& client, std::int64_t jump_max, std::size_t fences_max)
    : client_{client},
      jump_max_{jump_max},
      keys_{std::make_unique<FenceKeys>(client.address().prefix)},
      cache_{std::make_unique<FenceCache>(fences_max)} {}

Guard::~Guard() = default;

void Guard::require_free(const Txn& txn, std::size_t claims) const {
  for (const auto* ops : {&txn.then, &txn.otherwise}) {
    for (const auto& op : *ops) {
      if (keys_->is_reserved(op))
        throw InvalidInput(fmt::format("the key '{}', or one in its range, is fenceguard's own", op.key));
    }
  }
  // Beside the caller's: for each claim a fence, and the mark; where they are compared or read the floor,
  // too.
  if (txn.then.size() + claims + 1 > ops_max ||
      std::max(txn.otherwise.size(), txn.compare.size()) + claims + 2 > ops_max) {
    throw InvalidInput(fmt::format(
        "a transaction of etcd takes {} compares and {} operations, and {} compares and {} operations are "
        "the guard's",
        ops_max, ops_max, claims + 2, claims + 1));
  }
  if (any_writes(txn.otherwise))
    throw InvalidInput("an operation that writes when the transaction fails would write for a refused claim");
}

void Guard::require_plausible(const ClaimTransaction& check) {
  for (const auto& claim : check.raising()) {
    if (!is_implausible(claim, cache_->highest(), jump_max_)) continue;
    const auto [is_plausible, highest] = plausibility_of(client_, *keys_, claim, jump_max_);
    cache_->learn_highest(highest);
    if (is_plausible) continue;
    throw Implausible(fmt::format("token {} for '{}' is more than {} above all that was ever seen here",
                                  to_string(claim.token), claim.resource.name(), jump_max_));
  }
}

TxnAnswer Guard::send(const Txn& txn, bool may_change) {
  try {
    return client_.txn(txn);
  } catch (const OutcomeUnknown& error) {
    if (may_change) throw;  // as the type that it is
    throw Unavailable(error.what());
  }
}

// A cluster without space may have applied what it refused. What only looks and removes needs no space, and
// the fence tells which of the two it was, unless the write was to leave it as it is. True: it was done.
// False: judge again; it was not to write anything.
bool Guard::is_done_all_the_same(const ClaimTransaction& sent, const Txn& wanted, const OutOfSpace& error) {
  auto trace = ClaimTransaction::Trace::other;
  try {
    trace = sent.trace_in(client_.txn(sent.look()), *cache_);
  } catch (const Error&) {
    throw error;
  }
  if (trace == ClaimTransaction::Trace::none)
    throw Unavailable(fmt::format("{}; nothing was written", error.what()));
  if (wanted.then.empty()) return trace == ClaimTransaction::Trace::own;
  // The answers of other operations are lost.
  const bool only_puts =
      std::ranges::all_of(wanted.then, [](const Op& op) { return op.kind == Op::Kind::put; });
  if (trace == ClaimTransaction::Trace::own && only_puts) return true;
  throw error;
}

// The token of an admitted claim stays even if its write was refused for another reason.
std::vector<Ruling> Guard::advance_all(std::span<const Claim> claims) {
  try {
    return apply(without_sequences(claims), {}).rulings;
  } catch (const OutcomeUnknown& error) {
    throw Unavailable(fmt::format(
        "the transaction's own compares failed and nothing was written; the fence may have been raised: {}",
        error.what()));
  }
}

WriteAllResult Guard::apply(std::span<const Claim> claims, const Txn& wanted) {
  require_free(wanted, claims.size());
  const bool is_write = any_writes(wanted.then);
  // What writes nothing must not use up a sequence.
  const auto judged = is_write ? std::vector<Claim>{claims.begin(), claims.end()} : without_sequences(claims);
  RetryBudget budget{client_.address().timeout};
  while (budget.has_another()) {
    ClaimTransaction check{*keys_, judged, *cache_};
    require_plausible(check);
    if (!check.has_mark()) {
      cache_->learn_mark(read_mark(client_, *keys_));
      continue;
    }
    auto txn = wanted;
    // It cannot be done: so it need not be sent, and is answered also where there is no space for it.
    if (!check.is_admitted()) txn.then.clear();
    check.add_to(txn);
    const bool moves_a_fence = check.changes();
    TxnAnswer answer;
    try {
      answer = send(txn, moves_a_fence || (is_write && check.is_admitted()));
    } catch (const OutOfSpace& error) {
      if (!is_done_all_the_same(check, wanted, error)) continue;
      return {check.rulings(), true, true, std::vector<OpAnswer>(wanted.then.size())};
    }
    const auto ending = check.read(answer, *cache_);
    WriteAllResult written{check.rulings(),
                           ending == ClaimTransaction::Ending::done,
                           ending != ClaimTransaction::Ending::compares_failed,
                           {}};
    if (ending == ClaimTransaction::Ending::outdated) continue;
    if (ending == ClaimTransaction::Ending::done) {
      answer.answers.resize(wanted.then.size());
      written.answers = std::move(answer.answers);
    }
    if (ending == ClaimTransaction::Ending::compares_failed && moves_a_fence)
      written.rulings = advance_all(judged);
    return written;
  }
  throw Unavailable(
      fmt::format("others claim '{}' without a pause; nothing was written", claims.front().resource.name()));
}

Ruling Guard::advance(const Claim& claim) {
  return std::move(apply({&claim, 1}, {}).rulings.front());
}

WriteResult Guard::write(const Claim& claim, std::vector<Op> ops, std::vector<Compare> compares) {
  return single(write_all({&claim, 1}, std::move(ops), std::move(compares)));
}

WriteAllResult Guard::write_all(std::span<const Claim> claims, std::vector<Op> ops,
                                std::vector<Compare> compares) {
  if (ops.empty()) throw InvalidInput("a guarded write needs an operation; to judge alone, advance");
  return apply(claims, {std::move(compares), std::move(ops), {}});
}

WriteResult Guard::read(const Claim& claim, std::vector<Op> ops) {
  if (any_writes(ops)) throw InvalidInput("an operation of a fenced read writes; use write()");
  return single(apply({&claim, 1}, {{}, std::move(ops), {}}));
}

Admission Guard::admit_in(const Claim& claim, Txn& txn) {
  require_free(txn, 1);
  const auto judged = any_writes(txn.then) ? claim : claim.without_sequence();
  auto check = std::make_shared<ClaimTransaction>(*keys_, std::span{&judged, 1}, *cache_);
  require_plausible(*check);
  while (!check->has_mark()) {
    cache_->learn_mark(read_mark(client_, *keys_));
    check = std::make_shared<ClaimTransaction>(*keys_, std::span{&judged, 1}, *cache_);
  }
  check->add_to(txn);
  return Admission{std::move(check)};
}

Admission::Answer Guard::ruling_of(const Admission& admission, const TxnAnswer& answer) {
  auto check = *admission.check_;
  switch (check.read(answer, *cache_)) {
    case ClaimTransaction::Ending::done:
      return {Admission::Ending::done, check.rulings().front()};
    case ClaimTransaction::Ending::compares_failed:
      return {Admission::Ending::compares_failed, check.rulings().front()};
    case ClaimTransaction::Ending::refused:
      return {Admission::Ending::refused, check.rulings().front()};
    case ClaimTransaction::Ending::outdated:
      break;
  }
  return {Admission::Ending::again, check.rulings().front()};
}

}  // namespace fenceguard::etcd
