#include "adapters/redis/fences/fence_admin.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "adapters/redis/wire/client_list.hpp"
#include "adapters/redis/wire/errors.hpp"
#include "adapters/redis/wire/scripts.hpp"
#include "guard/support/fence_text.hpp"
#include "guard/support/read_only_call.hpp"

namespace fenceguard::redis {
namespace {

// Writers are not kept waiting for longer than so many fences take.
constexpr std::size_t compaction_step = 500;

constexpr std::string_view needs_one_namespace =
    "under Redis Cluster no script sees the whole namespace: there is nothing to initialise, to list or to "
    "compact";

void refuse_cluster(const Client& client) {
  if (client.is_cluster()) throw InvalidInput(std::string{needs_one_namespace});
}

Reply run(Client& client, std::string_view doing, const Run& run) {
  return unless_error(doing, client.run(run));
}

// The keys of a fence and, where there is one, of its namespace.
struct FenceKeys {
  // Of a resource that may be claimed. Throws InvalidInput.
  static FenceKeys of(const Client& client, const Resource& resource) {
    if (auto text = objection_to_resource(resource.name()); !text.empty())
      throw InvalidInput(std::move(text));
    return {client, resource};
  }
  FenceKeys(const Client& client, const Resource& resource)
      : fence{client.keys().fence(resource)},
        name_space{client.keys().name_space()},
        resources{client.keys().resources()},
        is_cluster{client.is_cluster()} {}

  [[nodiscard]] std::vector<std::string_view> all() const {
    if (is_cluster) return {fence};
    return {fence, name_space, resources};
  }

  std::string fence;
  std::string name_space;
  std::string resources;
  bool is_cluster;
};

// {floor, token, holder, sequence or nil, closed}, or {floor}. Throws OutcomeUnknown for anything else: what
// was asked may have been done.
FenceView view_of(const Reply& reply) {
  FenceView view;
  const auto floor = parse_decimal(reply.elements.at(0).text);
  if (!floor) throw OutcomeUnknown("the floor of this Redis namespace is damaged");
  view.floor = *floor;
  if (reply.elements.size() < 5) return view;
  const auto token = Token::parse(reply.elements[1].text);
  const auto& id = reply.elements[2].text;
  const auto holder = id.empty() ? std::optional{Holder{}} : Holder::parse(id);
  if (!token || !holder) throw OutcomeUnknown("a fence in Redis is damaged");
  view.record =
      Fence{*token, *holder, Sequence::parse(reply.elements[3].text), reply.elements[4].integer == 1};
  return view;
}

// A range of the index, whose members are in the order of their bytes.
std::vector<std::string> resources_in(Client& client, const FenceListing& listing) {
  const auto least = listing.after < listing.prefix ? "[" + listing.prefix : "(" + listing.after;
  // No resource holds this byte, because none is not UTF-8.
  const auto most = listing.prefix.empty() ? "+" : "(" + listing.prefix + '\xff';
  const auto count = std::to_string(listing.limit + 1);
  const auto index = client.keys().resources();
  const std::string_view words[] = {
      "ZRANGEBYLEX", index, least.size() == 1 ? "-" : std::string_view{least}, most, "LIMIT", "0", count};
  const auto reply = unless_error("listing fences", client.call(index, words));
  std::vector<std::string> names;
  for (const auto& element : reply.elements) names.push_back(element.text);
  return names;
}

}  // namespace

Ruling advance(Client& client, const Claim& claim, std::int64_t jump_max) {
  const auto keys = FenceKeys::of(client, claim.resource);
  const auto token = to_string(claim.token);
  const auto bound = std::to_string(jump_bound(claim, jump_max));
  constexpr std::size_t asked = 4;
  const auto reply = run(
      client, fmt::format("advancing '{}'", claim.resource.name()),
      {scripts::advance(), keys.all(), {claim.resource.name(), token, claim.holder.id(), bound, ""}, asked});
  const auto verdict = parse_verdict(reply.elements.at(0).text);
  const auto highest = parse_decimal(reply.elements.at(1).text);
  if (!verdict || !highest) throw OutcomeUnknown("Redis answered with what is no ruling");
  Ruling ruling{*verdict, *highest, std::nullopt, reply.elements.at(2).integer == 1};
  const bool is_closed = reply.elements.at(3).integer == 1;
  if (ruling.verdict == Verdict::admitted || (is_closed && *highest == claim.token.value()))
    ruling.fence = Fence{claim.token, claim.holder, std::nullopt, is_closed};
  if (reply.elements.size() > 5) {
    const auto overtaken = Token::parse(reply.elements[4].text);
    const auto holder = Holder::parse(reply.elements[5].text).value_or(Holder{});
    if (overtaken) ruling.overtaken = Fence{*overtaken, holder, std::nullopt, false};
  }
  return ruling;
}

FenceView look(Client& client, const Resource& resource) {
  const auto keys = FenceKeys::of(client, resource);
  auto named = keys.all();
  if (named.size() > 2) named.pop_back();
  return read_only_call([&] {
    return view_of(
        run(client, fmt::format("looking at '{}'", resource.name()), {scripts::look(), named, {}}));
  });
}

FencePage list(Client& client, const FenceListing& listing) {
  refuse_cluster(client);
  FencePage page;
  const auto names = read_only_call([&] { return resources_in(client, listing); });
  page.has_more = names.size() > listing.limit;
  std::vector<FenceKeys> keys;
  std::vector<Run> runs;
  for (const auto& name : names) {
    if (keys.size() < listing.limit) keys.emplace_back(client, Resource{name});
  }
  for (const auto& one : keys) runs.push_back({scripts::look(), {one.fence, one.name_space}, {}});
  auto replies = client.run_all(runs);
  for (std::size_t i = 0; i < replies.size(); ++i) {
    const auto view = read_only_call(
        [&] { return view_of(unless_error("listing fences", std::move(replies[i]).value_or_raise())); });
    // One that was compacted in between is left out.
    if (view.record) page.entries.push_back({Resource{names[i]}, *view.record});
  }
  return page;
}

FenceView revoke(Client& client, const Resource& resource, const Revocation& revocation) {
  const auto keys = FenceKeys::of(client, resource);
  const auto& lease = revocation.lease;
  const auto token = lease ? to_string(lease->token) : "";
  const auto holder = lease ? lease->holder.id() : "";
  const auto bound = std::to_string(lease ? jump_bound(*lease, revocation.jump_max) : 0);
  constexpr std::size_t asked = 4;
  return view_of(run(client, fmt::format("revoking '{}'", resource.name()),
                     {scripts::revoke(), keys.all(), {resource.name(), token, holder, bound, ""}, asked}));
}

namespace {

// After a fence was lowered by hand: the highest token decides what is implausible.
void lower_highest(Client& client, std::int64_t before) {
  std::int64_t found = 0;
  FenceListing listing{.prefix = {}, .after = {}, .limit = compaction_step};
  for (bool has_more = true; has_more;) {
    const auto page = list(client, listing);
    for (const auto& entry : page.entries) found = std::max(found, entry.fence.token.value());
    has_more = page.has_more && !page.entries.empty();
    if (has_more) listing.after = page.entries.back().resource.name();
  }
  const auto record = client.keys().name_space();
  const auto old = std::to_string(before);
  const auto lower = std::to_string(found);
  (void)run(client, "rebasing", {scripts::lower_highest(), {record}, {old, lower}});
}

}  // namespace

FenceView rebase(Client& client, const FenceStore::Rebase& rebase) {
  const auto keys = FenceKeys::of(client, rebase.resource);
  const auto highest = client.is_cluster() ? 0 : status(client).highest;
  const auto log = client.keys().rebased(rebase.resource);
  auto named = keys.all();
  named.insert(named.begin() + 1, log);
  const auto to = to_string(rebase.to);
  auto view = view_of(run(client, fmt::format("rebasing '{}'", rebase.resource.name()),
                          {scripts::rebase(), named, {rebase.resource.name(), to, rebase.by}}));
  try {
    if (rebase.to.value() < highest) lower_highest(client, highest);
  } catch (const Error&) {
    // The fence is set. What counts as implausible stays generous until the next time.
  }
  return view;
}

std::int64_t init(Client& client, std::int64_t floor) {
  refuse_cluster(client);
  const auto record = client.keys().name_space();
  const auto watched = client.keys().floor();
  const auto wanted = std::to_string(floor);
  const auto reply = run(client, "initialising", {scripts::init(), {record, watched}, {wanted}});
  const auto result = parse_decimal(reply.text);
  if (!result) throw Unavailable("the floor of this Redis namespace is damaged");
  return *result;
}

namespace {

// In steps; sum is what was done so far, also where it throws.
Compaction compact_all(Client& client, Token lowest_live, Compaction& sum) {
  const auto lowest = to_string(lowest_live);
  const auto record = client.keys().name_space();
  const auto watched = client.keys().floor();
  const auto index = client.keys().resources();
  FenceListing listing{.prefix = {}, .after = {}, .limit = compaction_step};
  for (;;) {
    auto names = resources_in(client, listing);
    const bool has_more = names.size() > compaction_step;
    if (has_more) names.pop_back();
    std::vector<std::string> fences;
    for (const auto& name : names) fences.push_back(client.keys().fence(Resource{name}));
    Run run{scripts::compact(), {record, watched, index}, {lowest}};
    run.keys.insert(run.keys.end(), fences.begin(), fences.end());
    run.arguments.insert(run.arguments.end(), names.begin(), names.end());
    const auto reply = redis::run(client, "compacting", run);
    sum.dropped += reply.elements.at(0).integer;
    sum.floor = parse_decimal(reply.elements.at(1).text).value_or(0);
    if (reply.elements.size() > 2) {
      Reply refusal;
      refusal.kind = Reply::Kind::error;
      refusal.text = reply.elements[2].text;
      const auto fault = fault_of("compacting", refusal);
      throw OutcomeUnknown(fmt::format("{} fences were dropped, and the floor is {}; then {}", sum.dropped,
                                       sum.floor, fault.message));
    }
    if (!has_more) return sum;
    listing.after = names.back();
  }
}

}  // namespace

Compaction compact(Client& client, Token lowest_live) {
  refuse_cluster(client);
  Compaction sum;
  try {
    return compact_all(client, lowest_live, sum);
  } catch (const Unavailable& error) {
    if (sum.dropped == 0) throw;
    throw OutcomeUnknown(fmt::format("{} fences were dropped, then: {}", sum.dropped, error.what()));
  }
}

namespace {

// Managed servers have no CONFIG, and a user may lack the right to either.
std::string policy_of(Connection& connection) {
  const std::string_view info[] = {"INFO", "memory"};
  const auto reply = connection.call(info);
  const auto policy = reply.is_error() ? std::string_view{} : info_field(reply.text, "maxmemory_policy");
  if (!policy.empty()) return std::string{policy};
  const std::string_view config[] = {"CONFIG", "GET", "maxmemory-policy"};
  const auto setting = connection.call(config);
  return setting.elements.size() == 2 ? setting.elements[1].text : std::string{};
}

}  // namespace

std::optional<std::string> evicting_policy(Client& client) {
  std::optional<std::string> found;
  client.at_each([&](Connection& connection) {
    const auto policy = policy_of(connection);
    if (policy.starts_with("allkeys-")) found = policy;
  });
  return found;
}

bool may_have_evicted(Client& client, bool is_evicting) {
  const auto record = client.keys().name_space();
  const std::string_view noted[] = {"HGET", record, "evicting"};
  const bool is_noted = !unless_error("looking at the fences", client.call(record, noted)).text.empty();
  if (!is_evicting && !is_noted) return false;
  const Run look{scripts::eviction(), {record}, {is_evicting ? "1" : "0"}};
  return run(client, "looking for evicted fences", look).integer == 1;
}

StoreStatus status(Client& client) {
  StoreStatus status;
  if (client.is_cluster()) {
    // No script sees the whole namespace, but its counters start at the server's clock.
    const std::string_view clock[] = {"TIME"};
    const auto time = unless_error("looking at the cluster", client.call({}, clock));
    status.highest = parse_decimal(time.elements.at(0).text).value_or(0) * 1'000'000;
    return status;
  }
  const auto record = client.keys().name_space();
  const auto index = client.keys().resources();
  const std::string_view fields[] = {"HMGET", record, "floor", "highest"};
  const std::string_view count[] = {"ZCARD", index};
  const auto reply = unless_error("looking at the fences", client.call(record, fields));
  const auto floor = parse_decimal(reply.elements.at(0).text);
  const auto highest = parse_decimal(reply.elements.at(1).text);
  if (!floor || !highest) {
    status.state = StoreState::uninitialised;
    status.reason = not_initialised("Redis");
    return status;
  }
  status.floor = *floor;
  status.highest = *highest;
  status.resources = unless_error("counting fences", client.call(index, count)).integer;
  return status;
}

}  // namespace fenceguard::redis
