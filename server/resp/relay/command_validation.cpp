#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "adapters/redis/wire/cluster.hpp"
#include "guard/claim_keys.hpp"
#include "guard/error.hpp"
#include "server/resp/relay/relay.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

constexpr std::size_t keys_kept_max = 1024;

std::string changed(std::string_view text, int (*change)(int)) {
  std::string result{text};
  std::ranges::transform(result, result.begin(),
                         [change](unsigned char c) { return static_cast<char>(change(c)); });
  return result;
}

// What is shown of a name that a client chose.
std::string shown(std::string_view name) {
  std::string text{name.substr(0, 128)};
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

// Of a connection that has said no FENCE: a library may have opened it in place of one that had.
constexpr std::string_view sent_again =
    " (sent again after a lost connection, the first sending may have taken effect)";

std::string objection_to_pattern(const redis::CommandTable::Facts& facts, redis::Arguments words) {
  if (!redis::reads_by_pattern(facts, words)) return {};
  return fmt::format("NOFENCE a pattern of this {} reads keys that it does not name, so no claim covers them",
                     facts.name);
}

}  // namespace

std::string Relay::objection_to(const Facts& facts, redis::Arguments words, const Rule& rule) {
  const auto count = static_cast<int>(words.size());
  if (facts.arity > 0 ? count != facts.arity : count < -facts.arity)
    return fmt::format("ERR wrong number of arguments for '{}' command", changed(facts.name, std::tolower));
  if (rule.way == Way::refused)
    return fmt::format("ERR fenceguard: {} is not permitted here: {}", facts.name, rule.objection);
  if (auto text = find_keys(facts, words); !text.empty()) return text;
  if (reaches_reserved(facts, words, options_.keys))
    return fmt::format("ERR fenceguard: a pattern of this {} could read what is fenceguard's own",
                       facts.name);
  if (facts.name == "SPUBLISH" && port_.is_cluster())
    return "ERR fenceguard: the channels of a cluster's shards are not relayed";
  const bool looks_at_all = keys_.empty() && facts.reads;
  if (looks_at_all && port_.is_cluster())
    return fmt::format(
        "ERR fenceguard: {} names no key, and one server of a cluster answers for its own alone", facts.name);
  if (options_.permissions.unfenced != Unfenced::refuse) return {};
  if (auto text = objection_to_pattern(facts, words); !text.empty() || !facts.reads) return text;
  if (keys_.empty()) return fmt::format("NOFENCE {} names no key, so no claim covers it", facts.name);
  Needs needs;
  return find_needs(needs);
}

std::string Relay::objection_under(const Facts& facts, redis::Arguments words, const Rule& rule,
                                   const std::string& resource) {
  const bool is_judged =
      rule.way == Way::write || rule.way == Way::script || (rule.way == Way::read && facts.reads);
  const auto count = static_cast<int>(words.size());
  if (facts.arity > 0 ? count != facts.arity : count < -facts.arity) return objection_to(facts, words, rule);
  if (waits(facts, words)) return objection_to_waiting(facts);
  if (!is_judged)
    return fmt::format("ERR fenceguard: {} cannot be said under FENCED{}{}", facts.name,
                       rule.objection.empty() ? "" : ": ", rule.objection);
  if (auto text = find_keys(facts, words); !text.empty()) return text;
  if (reaches_reserved(facts, words, options_.keys)) return objection_to(facts, words, rule);
  if (auto text = objection_to_pattern(facts, words); !text.empty()) return text;
  const auto other =
      std::ranges::find_if(keys_, [&](auto key) { return redis::resource_of_key(key) != resource; });
  if (!keys_.empty() && other == keys_.end()) return {};
  return fmt::format("NOFENCE resource={}: the claim is to {}",
                     keys_.empty() ? "" : redis::resource_of_key(*other), resource);
}

std::string Relay::find_keys(const Facts& facts, redis::Arguments words) {
  keys_.clear();
  if (keys_.capacity() > keys_kept_max) free_memory(keys_);
  slot_ = -1;
  // Scripts say how many keys they declare.
  const bool has_no_keys = is_script(facts.name) && words.size() > 2 && words[2] == "0";
  if (!has_no_keys) {
    try {
      redis::keys_of(facts, words, keys_);
    } catch (const InvalidInput& error) {
      return fmt::format("ERR fenceguard: {}", error.what());
    }
  }
  for (const auto key : keys_) {
    if (options_.keys.is_reserved(key))
      return fmt::format("ERR fenceguard: the key '{}' is fenceguard's own", shown(key));
    if (!port_.is_cluster()) continue;
    const auto slot = static_cast<int>(redis::slot_of(key));
    if (slot_ >= 0 && slot != slot_) return "CROSSSLOT Keys in request don't hash to the same slot";
    slot_ = slot;
  }
  return {};
}

std::string Relay::find_needs(Needs& needs) {
  const bool may_lack = options_.permissions.unfenced == Unfenced::allow;
  if (keys_.empty() && !may_lack) return "NOFENCE it names no key, so no claim covers it";
  ++commands_seen_;
  for (const auto key : keys_) {
    const auto resource = redis::resource_of_key(key);
    if (const auto* held = claims_.find(login_.database(), resource)) {
      if (std::exchange((*held)->in_command, commands_seen_) != commands_seen_) needs.claims.push_back(*held);
    } else if (const auto objection = Resource::objection(resource); may_lack) {
      // What can be no resource has no fence.
      if (objection.empty()) needs.unclaimed.emplace(resource);
    } else {
      if (!objection.empty())
        return fmt::format("ERR fenceguard: the key '{}' belongs to no resource that can be claimed: {}",
                           shown(key), objection);
      observer_.missing(resource);
      if (!held_.empty()) return fmt::format("NOFENCE resource={}: this sidecar does not hold it", resource);
      return fmt::format(
          "NOFENCE resource={}: this connection holds no claim to it; say FENCE {} TOKEN HOLDER first{}",
          resource, resource, has_fenced_ ? "" : sent_again);
    }
  }
  return {};
}

std::string Relay::known_refusal(const std::vector<HeldClaimPtr>& claims) {
  const auto refused =
      std::ranges::find_if(claims, [](const auto& held) { return held->refusal.has_value(); });
  if (refused == claims.end()) return {};
  const auto& held = **refused;
  observer_.ruled("write", held.claim, *held.refusal, held.highest, 1);
  return refusal_text(held.claim, *held.refusal, held.highest);
}

std::string Relay::objection_to_judging(const char* operation, const std::vector<HeldClaimPtr>& claims) {
  if (!options_.may_evict || !*options_.may_evict) return {};
  const Fault fault{
      FaultKind::unavailable,
      "by the maxmemory-policy of Redis fences may be evicted, or may have been: set noeviction, and run "
      "'fenceguard fence init' where /readyz still asks for it; nothing was written"};
  for (const auto& held : claims) observer_.failed(operation, held->claim, fault, 1);
  return fault_text(fault);
}

std::string Relay::objection_to_waiting(const Facts& facts) const {
  const auto form = form_without_waiting(facts.name);
  return fmt::format(
      "ERR fenceguard: under a claim {} would act at a moment when nobody judges; {}", facts.name,
      form.empty() ? "there is no form of it that does not wait" : fmt::format("say {} instead", form));
}

std::string Relay::objection_to_signature(const char* operation, const SpokenClaim& spoken) {
  const auto* keys = options_.keys_required;
  if (keys == nullptr || keys->verify(spoken.claim, spoken.signature)) return {};
  observer_.not_signed(operation, spoken.claim);
  return fmt::format(
      "UNSIGNED resource={}: a claim carries its signature, as granted with the lease, behind SIG",
      spoken.claim.resource.name());
}

// A module may have been loaded meanwhile.
bool Relay::take_unknown(const Request& request) {
  // What Redis would take for another command's name is not learnt for good.
  const bool is_name =
      request.words[0].size() <= 128 && request.words[0].find('\0') == std::string_view::npos;
  if (is_name && !std::exchange(has_learned_, true)) {
    flush();
    is_waiting_ = true;
    port_.learn_command(request.words[0]);
    return false;
  }
  has_learned_ = false;
  const auto& words = request.words;
  // Redis shows each word up to its first NUL.
  const auto shown = [](std::string_view word, std::size_t most) {
    return word.substr(0, std::min(most, word.find('\0')));
  };
  if (words.size() > 1 && options_.commands->find(words.first(1)) != nullptr) {
    return answer_error(fmt::format("ERR unknown subcommand '{}'. Try {} HELP.", shown(words[1], 128),
                                    changed(words[0], std::toupper)));
  }
  std::string arguments;
  for (std::size_t i = 1; i < words.size() && arguments.size() < 128; ++i)
    arguments += fmt::format("'{}' ", shown(words[i], 128 - arguments.size()));
  return answer_error(
      fmt::format("ERR unknown command '{}', with args beginning with: {}", shown(words[0], 128), arguments));
}

}  // namespace fenceguard::resp
