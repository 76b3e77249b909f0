#include "adapters/redis/lock/lock_client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "adapters/redis/lock/lock_scan.hpp"
#include "adapters/redis/wire/errors.hpp"
#include "adapters/redis/wire/scripts.hpp"
#include "guard/error.hpp"
#include "guard/support/read_only_call.hpp"

namespace fenceguard::redis {
namespace {

constexpr std::chrono::milliseconds left_unknown{1'000};

std::string text_of(std::chrono::milliseconds duration) {
  return std::to_string(duration.count());
}

// What our own scripts cannot have answered proves nothing about what they did.
void require_shape(const Reply& reply, std::size_t size) {
  if (reply.elements.size() < size)
    throw OutcomeUnknown("Redis answered with what no script of ours answers");
}

Token token_of(const Reply& reply) {
  const auto token = Token::parse(reply.text);
  if (!token) throw OutcomeUnknown(fmt::format("Redis answered with the token '{}'", reply.text));
  return *token;
}

LockClient::Refusal refusal_of(const Reply& reply) {
  require_shape(reply, 3);
  LockClient::Refusal refusal{LockClient::Ms{reply.elements[1].integer}, true, {}, {}};
  if (reply.elements[0].text == "free") {
    refusal.first = reply.elements[2].text;
  } else {
    refusal.is_ours = reply.elements[2].integer == 1;
  }
  if (reply.elements.size() > 3) {
    for (const auto& waiter : reply.elements[3].elements) refusal.lost.push_back(waiter.text);
  }
  if (refusal.left < LockClient::Ms{0}) refusal.left = left_unknown;
  return refusal;
}

// What the script 'show' answers; nothing: no lease of ours.
std::optional<LeaseRecord> record_of(const Resource& resource, const Reply& reply) {
  if (reply.is_nil()) return std::nullopt;
  require_shape(reply, 3);
  const auto& id = reply.elements[1].text;
  const auto holder = id.empty() ? std::optional{Holder{}} : Holder::parse(id);
  if (!holder) return std::nullopt;  // another library's lock after all
  const auto left = reply.elements[2].integer;
  return LeaseRecord{{resource, token_of(reply.elements[0]), *holder, std::nullopt},
                     LockClient::Ms{left < 0 ? ttl_max.count() : left}};
}

}  // namespace

LockClient::LockClient(const Address& address, const LockOptions& options)
    : pool_{address},
      keys_{address.prefix},
      options_{options},
      lock_key_{keys_, options.lock_key, pool_.connect()} {}

LockClient::Answer LockClient::ask(const Ask& ask) {
  require_sensible_ttl(ask.ttl);
  const auto& [resource, holder, ttl, enters, waiter] = ask;
  Call call{fmt::format("taking the lock of '{}'", resource.name()),
            options_.is_fair ? scripts::grant_in_line() : scripts::grant(),
            {lock_key_.of(resource), counter(resource)},
            {holder.id(), text_of(ttl), enters ? "enter" : "ask"}};
  if (options_.is_fair) {
    call.keys.insert(call.keys.end(), {keys_.queue(resource), keys_.waiters(resource)});
    call.arguments.insert(call.arguments.end(), {waiter, text_of(place_life)});
  }
  add_pattern(call);
  const auto reply = options_.replicas > 0 ? run_at_replicas(call, ask) : run(call);
  require_shape(reply, 3);
  const auto& word = reply.elements[0].text;
  if (word == "held") return {std::nullopt, refusal_of(reply)};
  const Ms granted{parse_decimal(reply.elements[2].text).value_or(ttl.count())};
  return {Grant{{resource, token_of(reply.elements[1]), holder, std::nullopt}, granted, word == "granted"}};
}

LockClient::Refusal LockClient::look(const Resource& resource, const std::vector<std::string>& waiters) {
  Call call{fmt::format("waiting for the lock of '{}'", resource.name()),
            scripts::line_up(),
            keys_to_free(resource),
            {text_of(place_life)}};
  call.arguments.insert(call.arguments.end(), waiters.begin(), waiters.end());
  return read_only_call([&] { return refusal_of(run(call)); });
}

void LockClient::leave(const Resource& resource, const std::string& waiter) noexcept {
  try {
    (void)run({"leaving the line", scripts::leave(), keys_to_free(resource), {waiter, channel(resource)}});
  } catch (const std::exception&) {
    // The queue entry expires soon.
  }
}

Renewal LockClient::renew(const Claim& claim, Ms ttl) {
  require_sensible_ttl(ttl);
  Call call{fmt::format("renewing the lock of '{}'", claim.resource.name()),
            scripts::renew(),
            {lock_key_.of(claim.resource)},
            {to_string(claim.token), claim.holder.id(), text_of(ttl)}};
  add_pattern(call);
  const auto [reply, shortage] = options_.replicas > 0 ? run_and_copy(call, ttl) : Copied{run(call), {}};
  if (reply.integer != 1) return Renewal::lost;
  // It is renewed here, but not where a promotion would look: no caller may count on it.
  if (!shortage.empty()) throw OutcomeUnknown(shortage);
  return Renewal::renewed;
}

// Under a cluster no fence is ever folded.
void LockClient::add_pattern(Call& call) const {
  if (!lock_key_.is_shared() || pool_.is_cluster()) return;
  call.keys.push_back(keys_.lock_keys());
  call.arguments.push_back(lock_key_.pattern());
}

Release LockClient::free(const Claim& claim, const std::string& doing, const Script& script) {
  const auto reply = run({fmt::format("{} of '{}'", doing, claim.resource.name()),
                          script,
                          keys_to_free(claim.resource),
                          {to_string(claim.token), claim.holder.id(), channel(claim.resource)}});
  return reply.integer == 1 ? Release::released : Release::not_held;
}

Release LockClient::release(const Claim& claim) {
  return free(claim, "releasing the lock",
              options_.is_fair ? scripts::release_in_line() : scripts::release());
}

Release LockClient::end(const Resource& resource) {
  const auto seen = show(resource);
  if (!seen) return Release::not_held;
  return free(seen->claim, "ending the lease", options_.is_fair ? scripts::end_in_line() : scripts::end());
}

std::optional<LeaseRecord> LockClient::show(const Resource& resource) {
  return read_only_call([&]() -> std::optional<LeaseRecord> {
    const auto reply = run({fmt::format("looking at the lock of '{}'", resource.name()),
                            scripts::show(),
                            {lock_key_.of(resource)},
                            {}});
    return record_of(resource, reply);
  });
}

LeasePage LockClient::list(const FenceListing& listing) {
  const auto page_of = [&](Client& client) {
    const auto resources = locked_resources(client, lock_key_, listing);
    LeasePage page;
    for (std::span<const Resource> rest{resources}; !rest.empty() && !page.has_more;) {
      const auto some = rest.first(std::min(rest.size(), listing.limit + 1));
      rest = rest.subspan(some.size());
      for (auto& lease : live_of(client, some)) {
        if (!page.take(std::move(lease), listing)) break;
      }
    }
    return page;
  };
  return read_only_call([&] { return pool_.with(page_of); });
}

// What has expired meanwhile, or is another library's, is left out.
std::vector<LeaseRecord> LockClient::live_of(Client& client, std::span<const Resource> resources) const {
  std::vector<std::string> keys;
  for (const auto& resource : resources) keys.push_back(lock_key_.of(resource));
  std::vector<Run> runs;
  for (const auto& key : keys) runs.push_back({scripts::show(), {key}, {}});
  auto replies = client.run_all(runs);
  std::vector<LeaseRecord> live;
  for (std::size_t i = 0; i < replies.size(); ++i) {
    auto reply = std::move(replies[i]).value_or_raise();
    if (reply.is_error() && reply.text.find("WRONGTYPE") != std::string::npos) continue;
    auto lease = record_of(resources[i], unless_error("listing leases", std::move(reply)));
    if (lease) live.push_back(*std::move(lease));
  }
  return live;
}

void LockClient::raise(const Resource& resource, Token mark, std::int64_t jump_max) {
  (void)run({"raising the counter",
             scripts::raise(),
             {counter(resource)},
             {to_string(mark), std::to_string(jump_max)}});
}

void LockClient::raise_far(Token mark, const std::string& done_by) {
  (void)run({"raising the counter",
             scripts::raise(),
             {keys_.counter(), keys_.counter_rebased()},
             {to_string(mark), "0", done_by}});
}

Token LockClient::lower(Token mark, const std::string& done_by) {
  return token_of(run({"lowering the counter",
                       scripts::lower(),
                       {keys_.counter(), keys_.counter_rebased()},
                       {to_string(mark), done_by}}));
}

Token LockClient::draw() {
  if (pool_.is_cluster()) {
    throw InvalidInput(
        "under Redis Cluster each resource has a counter of its own: there is no number of the whole "
        "namespace to be drawn, and nothing to be initialised");
  }
  return token_of(run({"drawing a number", scripts::draw_one(), {keys_.counter()}, {}}));
}

std::optional<Token> LockClient::lowest_live() {
  if (pool_.is_cluster()) return std::nullopt;
  return read_only_call([&]() -> std::optional<Token> {
    return pool_.with([&](Client& client) { return lowest_live_token(client, lock_key_); });
  });
}

// The locks of other libraries have shapes of their own.
Reply LockClient::accepted(const Call& call, Reply reply) const {
  const bool is_theirs = lock_key_.is_shared() && lock_key_.resource_of(call.keys.front()).has_value();
  if (is_theirs && reply.is_error() && reply.text.starts_with("WRONGTYPE"))
    throw Unavailable(
        fmt::format("{}: the key '{}' of ?lock_key= holds what another library keeps there, such as the hash "
                    "of a Redisson "
                    "lock, and its lock may be held just now: do not remove it; give ?lock_key= a name that "
                    "no other library "
                    "uses, or have that one end its locks first",
                    call.doing, call.keys.front()));
  return unless_error(call.doing, std::move(reply));
}

Reply LockClient::run(const Call& call) {
  return pool_.with([&](Client& client) { return accepted(call, client.run(call.run())); });
}

LockClient::Copied LockClient::run_and_copy(const Call& call, Ms ttl) {
  const Ms limit = std::max(Ms{1}, std::min(pool_.address().timeout, ttl) / 2);
  Reply reply;
  const int count = pool_.with([&](Client& client) { return replicas_with(client, call, reply, limit); });
  reply = accepted(call, std::move(reply));
  if (count >= options_.replicas) return {std::move(reply), {}};
  return {std::move(reply), fmt::format("{}: {} of the {} replicas wanted had it within {} ms", call.doing,
                                        count, options_.replicas, limit.count())};
}

// A grant that too few replicas have would be lost with this server, so it is given back. A lease that was
// granted before is left as it was.
Reply LockClient::run_at_replicas(const Call& call, const Ask& ask) {
  const auto [reply, shortage] = run_and_copy(call, ask.ttl);
  require_shape(reply, 3);
  const auto& word = reply.elements[0].text;
  if (word == "held" || shortage.empty()) return reply;
  if (word == "granted" || ask.enters) {
    try {
      (void)release({ask.resource, token_of(reply.elements[1]), ask.holder, std::nullopt});
    } catch (const Error& error) {
      throw OutcomeUnknown(fmt::format("{}, and it could not be given back: {}", shortage, error.what()));
    }
  }
  throw Unavailable(shortage);
}

// How many replicas have what the call wrote: EVALSHA and WAIT in one round trip.
int LockClient::replicas_with(Client& client, const Call& call, Reply& reply, Ms limit) const {
  const auto run = call.run();
  const auto key_count = std::to_string(run.keys.size());
  const auto replicas = std::to_string(options_.replicas);
  const auto limit_ms = text_of(limit);
  bool by_hash = true;
  for (bool has_learned = false;;) {
    const std::vector<std::string_view> both[] = {command_of(run, by_hash, key_count),
                                                  {"WAIT", replicas, limit_ms}};
    auto replies = client.connection(run.keys.front()).call_all(both);
    reply = std::move(replies[0]);
    if (by_hash && is_unknown_script(reply)) {
      by_hash = false;
      continue;
    }
    if (!has_learned && reply.is_error() && reply.text.starts_with("MOVED ")) {
      // Nothing was run. The client follows with a look, and knows from then on where the key is.
      const std::string_view look[] = {"EXISTS", run.keys.front()};
      (void)read_only_call([&] { return client.call(run.keys.front(), look); });
      has_learned = by_hash = true;
      continue;
    }
    if (reply.is_error()) return 0;
    return replies[1].is_error() ? 0 : static_cast<int>(replies[1].integer);
  }
}

std::vector<std::string> LockClient::keys_to_free(const Resource& resource) const {
  if (!options_.is_fair) return {lock_key_.of(resource)};
  return {lock_key_.of(resource), keys_.queue(resource), keys_.waiters(resource)};
}

std::string LockClient::counter(const Resource& resource) const {
  return pool_.is_cluster() ? keys_.counter(resource) : keys_.counter();
}

}  // namespace fenceguard::redis
