#include "adapters/etcd/fences/fence_mark.hpp"

#include <fmt/format.h>

#include <string>

#include "adapters/etcd/fences/fence_listing.hpp"
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

// Looks at every fence, and makes or lifts the mark by what it finds. Answers the highest token.
std::int64_t look_at_all(Client& client, const FenceKeys& keys) {
  const auto mark = look(client, keys).mark;
  const auto highest = highest_of_all(client, keys, Reading::in_log);
  const auto text = std::to_string(highest);
  if (!mark) {
    // A concurrent raise creates the mark first; then this put does not happen.
    (void)certain(client, {{is_absent(keys.highest())}, {put(keys.highest(), text)}, {}});
  } else if (highest > *mark) {
    try {
      (void)client.txn({{value_is(keys.highest(), std::to_string(*mark))}, {put(keys.highest(), text)}, {}});
    } catch (const Error&) {
      // It is lifted by the next one.
    }
  }
  return highest;
}

CoalescedScan::Found look_since(Client& client, const FenceKeys& keys, CoalescedScan::Time since,
                                CoalescedScan::Time meanwhile = CoalescedScan::Time::max()) {
  return client.full_look().since(
      since, [&] { return look_at_all(client, keys); }, meanwhile);
}

Known look_or_make(Client& client, const FenceKeys& keys) {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const auto asked = client.full_look().now();
    auto known = look(client, keys);
    if (known.mark) return known;
    // At first whatever look others are at, or have just ended: it makes the mark.
    (void)look_since(client, keys, attempt == 0 ? asked - CoalescedScan::beside_mark : asked);
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
  const auto asked = client.full_look().now();
  const auto known = look_or_make(client, keys);
  const auto least = std::max(*known.mark, known.floor);
  if (!is_implausible(claim, least, jump_max)) return {true, least};
  const bool is_open = !is_implausible(claim, std::max(bound_of(*known.mark), known.floor), jump_max);
  const auto found = look_since(client, keys, is_open ? asked : asked - CoalescedScan::beside_mark,
                                asked - CoalescedScan::beside_mark_meanwhile);
  const auto highest = std::max(found.number, least);
  if (!is_implausible(claim, highest, jump_max)) return {true, highest};
  if (is_open && found.begun < asked) {
    throw Unavailable(
        fmt::format("whether token {} for '{}' is too far above all that was seen here is not known: that "
                    "takes a look at "
                    "every fence, and there were too many lately; try again",
                    to_string(claim.token), claim.resource.name()));
  }
  return {false, highest};
}

void lower_mark(Client& client, const FenceKeys& keys, std::int64_t mark) noexcept {
  try {
    const auto highest = highest_of_all(client, keys, Reading::in_log);
    if (highest >= mark) return;
    (void)client.txn({{value_is(keys.highest(), std::to_string(mark))},
                      {put(keys.highest(), std::to_string(highest))},
                      {}});
    // A fence may have risen since it was looked at, by the mark as it was.
    (void)look_at_all(client, keys);
  } catch (const std::exception&) {
    // The fence is set.
  }
}

}  // namespace fenceguard::etcd
