#include <fmt/format.h>

#include <limits>

#include "adapters/etcd/fences/fence_keys.hpp"
#include "adapters/etcd/fences/fence_listing.hpp"
#include "guard/error.hpp"
#include "server/doctor/etcd_checks.hpp"

namespace fenceguard::etcd {
namespace {

using Level = Finding::Level;

// Nothing where the key holds no number.
std::optional<std::int64_t> offset_in(const OpAnswer& answer) {
  if (answer.found.empty()) return 0;
  return parse_decimal(answer.found.front().value);
}

}  // namespace

Finding look_at_offset(Client& client) {
  const FenceKeys keys{client.address().prefix};
  const auto offset = offset_in(client.range(get(keys.offset())));
  if (offset) return {Level::ok, "offset", std::to_string(*offset)};
  return {Level::danger, "offset",
          fmt::format("'{}' holds no number, and no token can be drawn: if you know what it was put it back, "
                      "else remove it and run 'fenceguard lease raise'",
                      keys.offset())};
}

Finding look_at_namespace(Client& client) {
  constexpr auto check = "namespace";
  const FenceKeys keys{client.address().prefix};
  const auto floor = floor_in(client.range(get(keys.floor())));
  if (!floor) {
    return {Level::danger, check,
            fmt::format("'{}' has no floor: every claim is unavailable until you run 'fenceguard fence init'",
                        client.address().prefix)};
  }
  return {Level::ok, check,
          fmt::format("'{}', floor {}, {} fences", client.address().prefix, *floor, count(client, keys))};
}

Finding look_at_order(Client& client) {
  constexpr auto check = "order";
  const FenceKeys keys{client.address().prefix};
  // The revision comes first: whatever is fenced now was drawn before.
  const auto answer = client.txn({{}, {get(keys.offset())}, {}});
  const auto offset = offset_in(answer.answers.at(0));
  if (!offset) return {Level::danger, check, "cannot be told: the offset holds no number"};
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  const auto present = *offset > most - answer.revision ? most : answer.revision + *offset;
  const auto highest = highest_of_all(client, keys, Reading::to_be_shown);
  // A fence may have been raised between the two reads, by a token that was drawn meanwhile.
  if (highest <= present)
    return {Level::ok, check, fmt::format("tokens are at {}, fences at {}", present, highest)};
  const auto again = client.txn({{}, {get(keys.offset())}, {}});
  const auto later = offset_in(again.answers.at(0));
  if (later && highest - *later <= again.revision)
    return {Level::ok, check,
            fmt::format("tokens are at {}, fences at {}", again.revision + *later, highest)};
  return {
      Level::danger, check,
      fmt::format(
          "the source is behind the fences: its next token would be {} or a little more, and a "
          "fence or the floor stands at {}. The cluster was probably restored from a snapshot, or the tokens "
          "come from another source. New holders are refused as stale until you run 'fenceguard "
          "lease raise' with --token {}, and then 'fenceguard fence init', which lifts the floor above "
          "all that was granted before",
          present < most ? present + 1 : most, highest, highest)};
}

}  // namespace fenceguard::etcd
