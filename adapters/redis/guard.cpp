#include "adapters/redis/guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "adapters/redis/guarded_call.hpp"

namespace fenceguard::redis {
namespace {

// What Lua's stack takes at once, with room for our own.
constexpr std::size_t words_max = 7'000;

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

// True for an error by which the server ran nothing of a call because of some of its keys or commands.
bool is_of_some(const Reply& reply) {
  constexpr std::array words{"TRYAGAIN", "NOPERM", "ERR The user executing", "ERR ACL failure"};
  return reply.is_error() &&
         std::ranges::any_of(words, [&](const char* word) { return reply.text.starts_with(word); });
}

}  // namespace

Guard::Guard(Client& client, std::int64_t jump_max, std::chrono::milliseconds settle)
    : client_{client}, jump_max_{jump_max}, settle_{settle} {
  if (jump_max < 0) throw InvalidInput(fmt::format("a jump bound is 0 (none) or more, not {}", jump_max));
  if (settle.count() < 0) throw InvalidInput("a settle time is 0 or more");
}

GuardedCall Guard::prepare(const Claim& claim, std::span<const Command> commands, std::size_t place) {
  if (const auto text = objection_to_resource(claim.resource.name()); !text.empty()) throw InvalidInput(text);
  if (client_.is_cluster() && claim.resource.name().find('}') != std::string::npos) {
    throw InvalidInput(
        fmt::format("under Redis Cluster a resource is a hash tag and holds no '}}', and this is '{}'",
                    claim.resource.name()));
  }
  GuardedCall call{claim, place};
  const CommandTable::Ask ask = [&](Arguments words) {
    return client_.call(client_.keys().fence(claim.resource), words);
  };
  for (const auto& command : commands) {
    const auto& facts = client_.commands().facts(ask, command);
    require_fit(facts, command);
    const auto keys = keys_of(facts, command);
    if (keys.empty()) throw InvalidInput(fmt::format("{} names no key", command.front()));
    for (const auto key : keys) require_key(client_.keys(), claim, key);
    call.add(command, facts, keys);
  }
  return call;
}

WriteResult Guard::apply(GuardedCall call) {
  client_.settle_lost(settle_);
  const auto run = call.run(client_, jump_max_);
  return std::move(call.outcomes(client_.run(run)).front()).value_or_raise();
}

Ruling Guard::advance(const Claim& claim) {
  return apply(prepare(claim, {})).ruling;
}

WriteResult Guard::write(const Claim& claim, const Command& command) {
  return apply(prepare(claim, {&command, 1}));
}

WriteResult Guard::write_batch(const Claim& claim, const std::vector<Command>& commands) {
  return apply(prepare(claim, commands));
}

WriteResult Guard::read(const Claim& claim, const Command& command) {
  auto call = prepare(claim, {&command, 1});
  if (call.writes()) throw InvalidInput(fmt::format("{} writes; use write()", command.front()));
  return apply(std::move(call));
}

// Where some command of a call of several kept all of it from being run, each by itself; but none behind a
// later one of its resource that took effect, or may have; nor after one of which that is not known, because
// that one may still be on its way.
void Guard::run_apart(std::span<const Write> writes, std::span<const GuardedCall> calls,
                      const std::vector<Outcome<Reply>>& replies,
                      std::vector<Outcome<WriteResult>>& outcomes) {
  const auto has_effect = [](const Outcome<WriteResult>& outcome) {
    return outcome.ok() ? outcome.value().ruling.verdict == Verdict::admitted
                        : outcome.fault().kind == FaultKind::unknown;
  };
  std::set<std::string_view> unknown;  // resources
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto& places = calls[i].places();
    if (places.size() == 1 || !replies[i].ok() || !is_of_some(replies[i].value())) continue;
    bool is_last = true;
    for (auto later = places.back() + 1; later < writes.size(); ++later) {
      const bool is_same = writes[later].claim.resource == calls[i].claim().resource;
      is_last = is_last && !(is_same && has_effect(outcomes[later]));
    }
    if (!is_last) continue;
    const std::string_view resource = calls[i].claim().resource.name();
    for (const auto place : places) {
      if (unknown.contains(resource)) {
        outcomes[place] = Fault{FaultKind::unavailable, "not sent: what came before it is unknown"};
        continue;
      }
      try {
        outcomes[place] = apply(prepare(writes[place].claim, writes[place].commands));
      } catch (const Error&) {
        outcomes[place] = current_fault();
        if (outcomes[place].fault().kind == FaultKind::unknown) unknown.insert(resource);
      }
    }
  }
}

std::vector<Outcome<WriteResult>> Guard::pipeline(std::span<const Write> writes) {
  std::vector<Outcome<WriteResult>> outcomes(writes.size(), Fault{});
  std::vector<GuardedCall> calls;
  calls.reserve(writes.size());
  for (std::size_t i = 0; i < writes.size(); ++i) {
    try {
      auto call = prepare(writes[i].claim, writes[i].commands, i);
      if (calls.empty() || !calls.back().take(call)) calls.push_back(std::move(call));
    } catch (const InvalidInput&) {
      outcomes[i] = current_fault();
    }
  }
  client_.settle_lost(settle_);
  std::vector<Run> runs;
  runs.reserve(calls.size());
  for (auto& call : calls) runs.push_back(call.run(client_, jump_max_));
  const auto replies = client_.run_all(runs);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    auto endings = calls[i].outcomes(replies[i]);
    for (std::size_t part = 0; part < endings.size(); ++part)
      outcomes[calls[i].places()[part]] = std::move(endings[part]);
  }
  run_apart(writes, calls, replies, outcomes);
  return outcomes;
}

}  // namespace fenceguard::redis
