#include "adapters/redis/guard.hpp"

#include <fmt/format.h>

#include <string>

#include "adapters/redis/errors.hpp"
#include "adapters/redis/scripts.hpp"

namespace fenceguard::redis {
namespace {

// What Lua's stack takes at once, with room for our own.
constexpr std::size_t words_max = 7'000;

// Where a key may not be named under this claim, the reason.
void require_key(const Keys& keys, const Claim& claim, const std::string& key) {
  if (keys.is_reserved(key))
    throw InvalidInput(fmt::format("the key '{}' is fenceguard's own; no command may name it", key));
  if (resource_of_key(key) != claim.resource.name()) {
    throw InvalidInput(fmt::format(
        "the key '{}' belongs to the resource '{}', and the claim is for '{}': put the resource into "
        "the key's hash tag, as in {{{}}}:name",
        key, resource_of_key(key), claim.resource.name(), claim.resource.name()));
  }
}

void require_fit(const CommandTable::Facts& facts, const Command& command, bool is_read) {
  const auto& name = command.front();
  if (command.size() > words_max)
    throw InvalidInput(fmt::format("a guarded {} has at most {} words", name, words_max));
  if (!facts.is_for_scripts || facts.runs_scripts || facts.leaves_database) {
    throw InvalidInput(
        fmt::format("{} cannot be guarded: it cannot be judged and applied in one step", name));
  }
  if (!facts.writes && !facts.reads)
    throw InvalidInput(fmt::format("{} neither writes nor reads a key", name));
  if (is_read && facts.writes) throw InvalidInput(fmt::format("{} writes; use write()", name));
}

Reply exact_of(const Reply& reply) {
  const bool is_exact = reply.elements.size() == 2 && reply.elements[0].text == "exact" &&
                        reply.elements[0].kind == Reply::Kind::text;
  if (!is_exact) return reply;
  Reply exact;
  exact.kind = Reply::Kind::integer;
  exact.integer = std::stoll(reply.elements[1].text);
  return exact;
}

Written written_of(const Reply& reply, const Claim& claim) {
  Written written;
  const auto verdict = parse_verdict(reply.elements.at(0).text);
  const auto highest = parse_decimal(reply.elements.at(1).text);
  if (!verdict || !highest) throw OutcomeUnknown("Redis answered with what is no ruling");
  written.ruling.verdict = *verdict;
  written.ruling.highest = *highest;
  if (*verdict == Verdict::admitted || *verdict == Verdict::duplicate) {
    written.ruling.fence =
        Fence{claim.token, claim.holder, Sequence::parse(reply.elements.at(2).text), false};
  }
  for (std::size_t i = 3; i < reply.elements.size(); ++i)
    written.replies.push_back(exact_of(reply.elements[i]));
  return written;
}

}  // namespace

// A run of the script with the texts that it only points to.
struct Guard::Prepared {
  std::vector<std::string> keys;
  std::vector<std::string> arguments;

  [[nodiscard]] Run run() const {
    return {scripts::guarded(), {keys.begin(), keys.end()}, {arguments.begin(), arguments.end()}};
  }
};

Guard::Prepared Guard::prepare(const Write& write, bool is_read) {
  const auto& claim = write.claim;
  const auto& keys = client_.keys();
  const bool is_cluster = client_.is_cluster();
  Prepared prepared;
  prepared.keys.push_back(keys.fence(claim.resource));
  if (is_cluster && claim.resource.name().find('}') != std::string::npos) {
    throw InvalidInput(
        fmt::format("under Redis Cluster a resource is a hash tag and holds no '}}', and this is '{}'",
                    claim.resource.name()));
  }
  if (!is_cluster) {
    prepared.keys.push_back(keys.name_space());
    prepared.keys.push_back(keys.resources());
  }
  prepared.arguments = {is_cluster ? "" : claim.resource.name(),
                        to_string(claim.token),
                        claim.holder.id(),
                        claim.sequence ? to_string(*claim.sequence) : "",
                        std::to_string(jump_max_),
                        std::to_string(write.commands.size())};
  for (const auto& command : write.commands) {
    auto& connection = client_.connection(prepared.keys.front());
    require_fit(client_.commands().facts(connection, command), command, is_read);
    const auto named = client_.commands().keys(connection, command);
    if (named.empty()) throw InvalidInput(fmt::format("{} names no key", command.front()));
    for (const auto& key : named) {
      require_key(keys, claim, key);
      prepared.keys.push_back(key);
    }
    prepared.arguments.push_back(std::to_string(command.size()));
    prepared.arguments.insert(prepared.arguments.end(), command.begin(), command.end());
  }
  return prepared;
}

std::vector<Outcome<Written>> Guard::run(std::span<const Write> writes, bool are_reads) {
  std::vector<Prepared> prepared;
  std::vector<Run> runs;
  prepared.reserve(writes.size());
  for (const auto& write : writes) prepared.push_back(prepare(write, are_reads));
  for (const auto& one : prepared) runs.push_back(one.run());
  const auto replies = client_.run_all(runs);
  std::vector<Outcome<Written>> outcomes;
  for (std::size_t i = 0; i < replies.size(); ++i) {
    if (!replies[i].ok()) {
      outcomes.emplace_back(replies[i].fault());
    } else if (replies[i].value().is_error()) {
      outcomes.emplace_back(
          fault_of(fmt::format("'{}'", writes[i].claim.resource.name()), replies[i].value()));
    } else {
      outcomes.emplace_back(written_of(replies[i].value(), writes[i].claim));
    }
  }
  return outcomes;
}

Ruling Guard::advance(const Claim& claim) {
  return write_all(claim.without_sequence(), {}).ruling;
}

Written Guard::write(const Claim& claim, const Command& command) {
  return write_all(claim, {command});
}

Written Guard::write_all(const Claim& claim, const std::vector<Command>& commands) {
  const Write write{claim, commands};
  return std::move(run({&write, 1}, false).front()).value_or_raise();
}

std::vector<Outcome<Written>> Guard::pipeline(std::span<const Write> writes) {
  return run(writes, false);
}

Written Guard::read(const Claim& claim, const Command& command) {
  const Write write{claim.without_sequence(), {command}};
  return std::move(run({&write, 1}, true).front()).value_or_raise();
}

}  // namespace fenceguard::redis
