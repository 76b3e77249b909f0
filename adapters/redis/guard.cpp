#include "adapters/redis/guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <string>

#include "adapters/redis/wire/errors.hpp"
#include "adapters/redis/wire/scripts.hpp"

namespace fenceguard::redis {
namespace {

// What Lua's stack takes at once, with room for our own.
constexpr std::size_t words_max = 7'000;
// Where guarded.lua is told that an ASK redirected the call, and where it answers with the first reply.
constexpr std::size_t asked_argument = 5;
constexpr std::size_t first_reply = 4;

// Where a key may not be named under this claim, the reason.
void require_key(const Keys& keys, const Claim& claim, std::string_view key) {
  if (keys.is_reserved(key))
    throw InvalidInput(fmt::format("the key '{}' is fenceguard's own; no command may name it", key));
  if (resource_of_key(key) != claim.resource.name()) {
    throw InvalidInput(fmt::format(
        "the key '{}' belongs to the resource '{}', and the claim is for '{}': put the resource into "
        "the key's hash tag, as in {{{}}}:name",
        key, resource_of_key(key), claim.resource.name(), claim.resource.name()));
  }
}

void require_fit(const CommandTable::Facts& facts, const Command& command) {
  if (command.size() > words_max)
    throw InvalidInput(fmt::format("a guarded {} has at most {} words", facts.name, words_max));
  if (const auto objection = objection_to(facts, command); !objection.empty())
    throw InvalidInput(fmt::format("{} cannot be guarded: {}", facts.name, objection));
}

// How the script is told of a command: the number of its words, negative if it only reads.
std::string count_of(const Command& command, bool writes) {
  return fmt::format("{}{}", writes ? "" : "-", command.size());
}

// Of an array {place, digits, place, digits, ...}: the replies that Lua rounded.
void make_exact(std::vector<Reply>& replies, const Reply& exact) {
  for (std::size_t i = 0; i + 1 < exact.elements.size(); i += 2) {
    const auto place = static_cast<std::size_t>(exact.elements[i].integer);
    replies.at(place - 1).integer = std::stoll(exact.elements[i + 1].text);
  }
}

// True for an error that says how the server is, not what is wrong with the command. It comes before the
// first write of a script or not at all (scripts of Redis: 'write commands are not refused once the script
// has written').
bool is_of_server(const Reply& reply) {
  constexpr std::array words{"READONLY", "OOM",    "MISCONF",     "NOREPLICAS", "LOADING",
                             "TRYAGAIN", "NOPERM", "CLUSTERDOWN", "MASTERDOWN"};
  return reply.is_error() &&
         std::ranges::any_of(words, [&](const char* word) { return reply.text.starts_with(word); });
}

// The answer of equal.lua: {the command's reply, sequence on record, digits of the reply}.
Written written_of_equal(Reply reply, const Claim& claim) {
  Written written;
  written.ruling.verdict = Verdict::admitted;
  written.ruling.highest = claim.token.value();
  written.ruling.fence = Fence{claim.token, claim.holder, Sequence::parse(reply.elements[1].text), false};
  if (reply.elements.size() > 2) reply.elements[0].integer = std::stoll(reply.elements[2].text);
  written.replies.push_back(std::move(reply.elements[0]));
  return written;
}

Outcome<Written> written_of(Reply reply, const Claim& claim) {
  if (reply.is_error()) return fault_of(fmt::format("'{}'", claim.resource.name()), reply);
  if (reply.elements.size() == 2 || reply.elements.size() == 3)
    return written_of_equal(std::move(reply), claim);
  const auto verdict = reply.elements.size() < first_reply ? std::nullopt  //
                                                           : parse_verdict(reply.elements[0].text);
  const auto highest = verdict ? parse_decimal(reply.elements[1].text) : std::nullopt;
  if (!highest) return Fault{FaultKind::unknown, "Redis answered with what is no ruling"};
  Written written;
  written.ruling.verdict = *verdict;
  written.ruling.highest = *highest;
  if (*verdict == Verdict::admitted || *verdict == Verdict::duplicate) {
    written.ruling.fence = Fence{claim.token, claim.holder, Sequence::parse(reply.elements[2].text), false};
  }
  const auto begin = reply.elements.begin();
  written.replies.assign(std::move_iterator{begin + first_reply}, std::move_iterator{reply.elements.end()});
  make_exact(written.replies, reply.elements[3]);
  return written;
}

}  // namespace

// A run of the script, with the texts that only it has.
struct Guard::Prepared {
  std::string fence_key, token, sequence;
  std::deque<std::string> counts;
  std::vector<bool> writes;  // for each command
  std::vector<std::string_view> keys, arguments;

  [[nodiscard]] Run run() {
    return {scripts::guarded(), std::move(keys), std::move(arguments), asked_argument};
  }

  // The outcome of a reply. A command that the server's state refused before anything was written is not run.
  [[nodiscard]] Outcome<Written> outcome(Outcome<Reply> reply, const Claim& claim) const {
    if (!reply.ok()) return reply.fault();
    auto outcome = written_of(std::move(reply.value()), claim);
    if (!outcome.ok() || outcome.value().replies.empty()) return outcome;
    const auto& replies = outcome.value().replies;
    const auto before = writes.begin() + static_cast<std::ptrdiff_t>(replies.size()) - 1;
    if (is_of_server(replies.back()) && std::find(writes.begin(), before, true) == before)
      return fault_of(fmt::format("'{}'", claim.resource.name()), replies.back());
    return outcome;
  }
};

Guard::Guard(Client& client, std::int64_t jump_max)
    : client_{client},
      jump_max_{std::to_string(jump_max)},
      namespace_key_{client.keys().name_space()},
      index_key_{client.keys().resources()} {}

void Guard::prepare(const Claim& claim, std::span<const Command> commands, Prepared& prepared) {
  const bool is_cluster = client_.is_cluster();
  if (is_cluster && claim.resource.name().find('}') != std::string::npos) {
    throw InvalidInput(
        fmt::format("under Redis Cluster a resource is a hash tag and holds no '}}', and this is '{}'",
                    claim.resource.name()));
  }
  prepared.fence_key = client_.keys().fence(claim.resource);
  prepared.token = to_string(claim.token);
  prepared.keys = {prepared.fence_key};
  if (!is_cluster) prepared.keys.insert(prepared.keys.end(), {namespace_key_, index_key_});
  const std::string_view resource = is_cluster ? std::string_view{} : claim.resource.name();
  prepared.arguments = {resource, prepared.token, claim.holder.id(), {}, jump_max_, {}};
  const CommandTable::Ask ask = [&](Arguments words) { return client_.call(prepared.fence_key, words); };
  for (const auto& command : commands) {
    const auto& facts = client_.commands().facts(ask, command);
    require_fit(facts, command);
    const auto named = keys_of(facts, command);
    if (named.empty()) throw InvalidInput(fmt::format("{} names no key", command.front()));
    for (const auto key : named) require_key(client_.keys(), claim, key);
    prepared.keys.insert(prepared.keys.end(), named.begin(), named.end());
    prepared.writes.push_back(facts.writes);
    prepared.arguments.push_back(prepared.counts.emplace_back(count_of(command, facts.writes)));
    prepared.arguments.insert(prepared.arguments.end(), command.begin(), command.end());
  }
  const bool any_writes = std::ranges::find(prepared.writes, true) != prepared.writes.end();
  // What writes nothing must not use up a sequence.
  if (claim.sequence && any_writes) prepared.arguments[3] = prepared.sequence = to_string(*claim.sequence);
}

Written Guard::apply(const Claim& claim, std::span<const Command> commands) {
  Prepared prepared;
  prepare(claim, commands, prepared);
  return prepared.outcome(client_.run(prepared.run()), claim).value_or_raise();
}

Ruling Guard::advance(const Claim& claim) {
  return apply(claim, {}).ruling;
}

Written Guard::write(const Claim& claim, const Command& command) {
  return apply(claim, {&command, 1});
}

Written Guard::write_batch(const Claim& claim, const std::vector<Command>& commands) {
  return apply(claim, commands);
}

std::vector<Outcome<Written>> Guard::pipeline(std::span<const Write> writes) {
  std::vector<Prepared> prepared(writes.size());
  std::vector<Run> runs;
  runs.reserve(writes.size());
  for (std::size_t i = 0; i < writes.size(); ++i) {
    prepare(writes[i].claim, writes[i].commands, prepared[i]);
    runs.push_back(prepared[i].run());
  }
  auto replies = client_.run_all(runs);
  std::vector<Outcome<Written>> outcomes;
  outcomes.reserve(writes.size());
  for (std::size_t i = 0; i < writes.size(); ++i)
    outcomes.push_back(prepared[i].outcome(std::move(replies[i]), writes[i].claim));
  return outcomes;
}

Written Guard::read(const Claim& claim, const Command& command) {
  const CommandTable::Ask ask = [&](Arguments words) {
    return client_.call(client_.keys().fence(claim.resource), words);
  };
  if (client_.commands().facts(ask, command).writes)
    throw InvalidInput(fmt::format("{} writes; use write()", command.front()));
  return apply(claim, {&command, 1});
}

}  // namespace fenceguard::redis
