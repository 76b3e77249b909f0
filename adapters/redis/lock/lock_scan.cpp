#include "adapters/redis/lock/lock_scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "adapters/redis/lock/lock_key.hpp"
#include "adapters/redis/wire/errors.hpp"
#include "guard/error.hpp"

namespace fenceguard::redis {
namespace {

constexpr std::string_view doing = "looking for live leases";

// The token of a lock of ours, or nothing.
std::optional<Token> token_in(const Reply& lock) {
  const auto space = lock.text.find(' ');
  if (lock.kind != Reply::Kind::text || space == std::string::npos) return std::nullopt;
  return Token::parse(std::string_view{lock.text}.substr(0, space));
}

Token lowest_in(Client& client, const std::vector<Reply>& keys, Token lowest) {
  if (keys.empty()) return lowest;
  std::vector<std::string_view> words{"MGET"};
  for (const auto& key : keys) words.push_back(key.text);
  const auto locks = unless_error(doing, client.call({}, words));
  for (const auto& lock : locks.elements) {
    if (const auto token = token_in(lock)) lowest = std::min(lowest, *token);
  }
  return lowest;
}

// take(keys) gets what one step found; some of it may have been found before.
template <class Take>
void scan(Client& client, const std::string& glob, Take take) {
  std::string cursor = "0";
  do {
    const std::string_view words[] = {"SCAN", cursor, "MATCH", glob, "COUNT", "1000"};
    const auto page = unless_error(doing, client.call({}, words));
    if (page.elements.size() != 2) throw Unavailable("Redis answered SCAN with what is no page");
    cursor = page.elements[0].text;
    take(page.elements[1].elements);
  } while (cursor != "0");
}

// A glob for our own locks, and one for each registered pattern. What is no pattern was not registered by us.
std::vector<std::string> globs_of_locks(Client& client, const LockKey& own) {
  std::vector<std::string> globs{LockKey{client.keys(), "", false}.glob()};
  if (own.is_shared()) globs.push_back(own.glob());
  const auto registry = client.keys().lock_keys();
  const std::string_view words[] = {"SMEMBERS", registry};
  const auto patterns = unless_error(doing, client.call(registry, words));
  for (const auto& pattern : patterns.elements) {
    try {
      globs.push_back(LockKey{client.keys(), pattern.text, false}.glob());
    } catch (const InvalidInput& error) {
      throw Unavailable(registry + " is damaged: " + error.what());
    }
  }
  return globs;
}

}  // namespace

Token lowest_live_token(Client& client, const LockKey& own) {
  const auto counter = client.keys().counter();
  const std::string_view words[] = {"HGET", counter, "value"};
  const auto value = unless_error(doing, client.call(counter, words));
  const auto last = value.is_nil() ? std::int64_t{0} : parse_decimal(value.text).value_or(-1);
  if (last < 0) throw Unavailable("the counter of this Redis namespace holds no number");
  Token lowest{last < std::numeric_limits<std::int64_t>::max() ? last + 1 : last};
  for (const auto& glob : globs_of_locks(client, own))
    scan(client, glob, [&](const auto& keys) { lowest = lowest_in(client, keys, lowest); });
  return lowest;
}

std::vector<Resource> locked_resources(Client& client, const LockKey& own, const FenceListing& listing) {
  const std::string_view words[] = {"DBSIZE"};
  const auto count = unless_error(doing, client.call({}, words)).integer;
  if (count > scan_keys_max) {
    throw Unavailable(
        fmt::format("leases are found by a look at every key of this Redis database, and it has {}, more "
                    "than {}: ask for one by its name",
                    count, scan_keys_max));
  }
  std::vector<Resource> found;
  scan(client, own.glob(listing.prefix), [&](const auto& keys) {
    for (const auto& key : keys) {
      if (auto resource = own.resource_of(key.text); resource && listing.names(*resource))
        found.push_back(*std::move(resource));
    }
  });
  std::ranges::sort(found);
  const auto again = std::ranges::unique(found);
  found.erase(again.begin(), again.end());
  return found;
}

}  // namespace fenceguard::redis
