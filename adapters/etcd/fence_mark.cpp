#include "adapters/etcd/fence_mark.hpp"

#include <fmt/format.h>

#include <string>

#include "adapters/etcd/fence_listing.hpp"
#include "guard/error.hpp"

namespace fenceguard::etcd {
namespace {

constexpr int attempts = 20;

// Of what changes no fence, and may be done again: an end that was not seen is no more than Unavailable.
TxnAnswer certain(Client& client, const Txn& txn) {
  try {
    return client.txn(txn);
  } catch (const OutcomeUnknown& error) {
    throw Unavailable(error.what());
  }
}

struct Known {
  std::optional<std::int64_t> mark;
  std::int64_t floor = 0;
};

// Decided in the log of the cluster.
Known look(Client& client, const FenceKeys& keys) {
  const auto answers =
      certain(client, {{}, {get(keys.highest()), get(keys.floor()), remove(keys.nothing())}, {}}).answers;
  return {mark_in(answers.at(0)), floor_in(answers.at(1)).value_or(0)};
}

Known look_or_make(Client& client, const FenceKeys& keys) {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    auto known = look(client, keys);
    if (known.mark) return known;
    // Whoever raises a fence meanwhile makes the mark before, and this one is not put.
    const auto text = std::to_string(highest_of_all(client, keys, Reading::in_log));
    (void)certain(client, {{is_absent(keys.highest())}, {put(keys.highest(), text)}, {}});
  }
  throw Unavailable(fmt::format("'{}' in etcd is removed as often as it is made", keys.highest()));
}

}  // namespace

std::int64_t keep_mark(Txn& txn, const FenceKeys& keys, std::int64_t mark, std::int64_t token) {
  txn.compare.push_back(value_is(keys.highest(), std::to_string(mark)));
  if (token <= bound_of(mark)) return mark;
  txn.then.push_back(put(keys.highest(), std::to_string(token)));
  return token;
}

std::optional<std::int64_t> mark_in(const OpAnswer& answer) {
  if (answer.found.empty()) return std::nullopt;
  if (const auto mark = parse_decimal(answer.found.front().value)) return mark;
  throw Unavailable(fmt::format(
      "'{}' in etcd holds no number; delete it: it is made anew from the fences at the next claim",
      answer.found.front().key));
}

std::int64_t read_mark(Client& client, const FenceKeys& keys) {
  return *look_or_make(client, keys).mark;
}

Plausibility plausibility_of(Client& client, const FenceKeys& keys, const Claim& claim,
                             std::int64_t jump_max) {
  const auto known = look_or_make(client, keys);
  const auto least = std::max(*known.mark, known.floor);
  if (!is_implausible(claim, least, jump_max)) return {true, least};
  if (is_implausible(claim, std::max(bound_of(*known.mark), known.floor), jump_max)) return {false, least};
  const auto highest = highest_of_all(client, keys, Reading::in_log);
  return {!is_implausible(claim, highest, jump_max), highest};
}

void lower_mark(Client& client, const FenceKeys& keys, std::int64_t mark) noexcept {
  try {
    const auto highest = highest_of_all(client, keys, Reading::in_log);
    if (highest >= mark) return;
    (void)client.txn({{value_is(keys.highest(), std::to_string(mark))},
                      {put(keys.highest(), std::to_string(highest))},
                      {}});
  } catch (const std::exception&) {
    // The fence is set.
  }
}

}  // namespace fenceguard::etcd
