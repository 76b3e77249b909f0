#include "adapters/etcd/fences/fence_listing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "guard/error.hpp"

namespace fenceguard::etcd {
namespace {

constexpr std::size_t page_max = 1'000;

// A page of the keys of fences.
Op page_of(const FenceKeys& keys, const FenceListing& listing) {
  const auto least = keys.fences() + listing.prefix;
  // The key that comes right after another one has a zero byte more.
  const auto after = listing.after.empty() ? std::string{} : keys.fences() + listing.after + '\0';
  return {.kind = Op::Kind::range,
          .key = std::max(least, after),
          .range_end = end_of_prefix(least),
          .limit = static_cast<std::int64_t>(listing.limit)};
}

// A transaction that could write goes through the log; etcd 3.4 may answer any other from the past.
OpAnswer read(Client& client, const FenceKeys& keys, Op range, Reading reading) {
  if (reading == Reading::to_be_shown) return client.range(range);
  try {
    return client.txn({{}, {std::move(range), remove(keys.nothing())}, {}}).answers.at(0);
  } catch (const OutcomeUnknown& error) {
    throw Unavailable(error.what());  // nothing was to be changed
  }
}

}  // namespace

FencePage list(Client& client, const FenceKeys& keys, const FenceListing& listing) {
  FencePage page;
  if (listing.limit == 0) return page;
  if (keys.fences() + listing.after >= end_of_prefix(keys.fences() + listing.prefix)) return page;
  const auto answer = client.range(page_of(keys, listing));
  page.has_more = answer.has_more;
  for (const auto& found : answer.found) {
    auto resource = Resource::parse(std::string_view{found.key}.substr(keys.fences().size()));
    if (!resource) throw Unavailable(fmt::format("'{}' in etcd is no fence of ours", found.key));
    auto fence = fence_in({{found}}, *resource);
    page.entries.push_back({std::move(*resource), std::move(*fence)});
  }
  return page;
}

std::int64_t highest_of_all(Client& client, const FenceKeys& keys, Reading reading) {
  std::int64_t highest = 0;
  const auto floor = read(client, keys, get(keys.floor()), reading);
  if (!floor.found.empty()) highest = parse_decimal(floor.found.front().value).value_or(0);
  FenceListing listing{.prefix = {}, .after = {}, .limit = page_max};
  for (;;) {
    const auto answer = read(client, keys, page_of(keys, listing), reading);
    for (const auto& found : answer.found) {
      if (const auto fence = parse_fence(found.value)) highest = std::max(highest, fence->token.value());
    }
    if (!answer.has_more || answer.found.empty()) return highest;
    listing.after = answer.found.back().key.substr(keys.fences().size());
  }
}

std::int64_t count(Client& client, const FenceKeys& keys) {
  auto all = get_all(keys.fences());
  all.limit = 1;
  all.keys_only = true;
  return client.range(all).count;
}

}  // namespace fenceguard::etcd
