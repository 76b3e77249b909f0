#include "server/resp/command/command_validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "adapters/redis/wire/cluster.hpp"
#include "guard/error.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

using Facts = redis::CommandTable::Facts;

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

std::string objection_to_count(const Facts& facts, redis::Arguments words) {
  const auto count = static_cast<int>(words.size());
  if (facts.arity > 0 ? count == facts.arity : count >= -facts.arity) return {};
  return fmt::format("ERR wrong number of arguments for '{}' command", changed(facts.name, std::tolower));
}

std::string objection_to_reserved(const Facts& facts, redis::Arguments words, const redis::Keys& keys) {
  if (!reaches_reserved(facts, words, keys)) return {};
  return fmt::format("ERR fenceguard: a pattern of this {} could read what is fenceguard's own", facts.name);
}

std::string find_keys(const Facts& facts, redis::Arguments words, const Destination& to, CommandKeys& found) {
  auto& names = found.names;
  names.clear();
  if (names.capacity() > keys_kept_max) free_memory(names);
  found.slot = -1;
  // Scripts say how many keys they declare.
  const bool has_no_keys = is_script(facts.name) && words.size() > 2 && words[2] == "0";
  if (!has_no_keys) {
    try {
      redis::keys_of(facts, words, names);
    } catch (const InvalidInput& error) {
      return fmt::format("ERR fenceguard: {}", error.what());
    }
  }
  for (const auto key : names) {
    if (to.keys.is_reserved(key))
      return fmt::format("ERR fenceguard: the key '{}' is fenceguard's own", shown(key));
    if (!to.is_cluster) continue;
    const auto slot = static_cast<int>(redis::slot_of(key));
    if (found.slot >= 0 && slot != found.slot) return std::string{crossslot};
    found.slot = slot;
  }
  return {};
}

}  // namespace

std::string objection_to(const Facts& facts, redis::Arguments words, const Rule& rule, const Destination& to,
                         CommandKeys& found) {
  if (auto text = objection_to_count(facts, words); !text.empty()) return text;
  if (rule.way == Way::refused)
    return fmt::format("ERR fenceguard: {} is not permitted here: {}", facts.name, rule.objection);
  if (auto text = find_keys(facts, words, to, found); !text.empty()) return text;
  if (auto text = objection_to_reserved(facts, words, to.keys); !text.empty()) return text;
  if (!to.is_cluster) return {};
  if (facts.name == "SPUBLISH") return std::string{shard_channels};
  if (!found.names.empty() || !facts.reads) return {};
  return fmt::format("ERR fenceguard: {} names no key, and one server of a cluster answers for its own alone",
                     facts.name);
}

std::string objection_to_unclaimed(const Facts& facts, redis::Arguments words, const CommandKeys& found) {
  if (redis::reads_by_pattern(facts, words))
    return fmt::format(
        "NOFENCE a pattern of this {} reads keys that it does not name, so no claim covers them", facts.name);
  if (!facts.reads || !found.names.empty()) return {};
  return fmt::format("NOFENCE {} names no key, so no claim covers it", facts.name);
}

std::string objection_under(const Facts& facts, redis::Arguments words, const Rule& rule,
                            std::string_view resource, const Destination& to, CommandKeys& found) {
  const bool is_judged =
      rule.way == Way::write || rule.way == Way::script || (rule.way == Way::read && facts.reads);
  if (auto text = objection_to_count(facts, words); !text.empty()) return text;
  if (waits(facts, words)) return objection_to_waiting(facts);
  if (!is_judged)
    return fmt::format("ERR fenceguard: {} cannot be said under FENCED{}{}", facts.name,
                       rule.objection.empty() ? "" : ": ", rule.objection);
  if (auto text = find_keys(facts, words, to, found); !text.empty()) return text;
  if (auto text = objection_to_reserved(facts, words, to.keys); !text.empty()) return text;
  const auto& names = found.names;
  if (redis::reads_by_pattern(facts, words)) return objection_to_unclaimed(facts, words, found);
  const auto other =
      std::ranges::find_if(names, [&](auto key) { return redis::resource_of_key(key) != resource; });
  if (!names.empty() && other == names.end()) return {};
  return fmt::format("NOFENCE resource={}: the claim is to {}",
                     names.empty() ? "" : redis::resource_of_key(*other), resource);
}

std::string objection_to_waiting(const Facts& facts) {
  const auto form = form_without_waiting(facts.name);
  return fmt::format(
      "ERR fenceguard: under a claim {} would act at a moment when nobody judges; {}", facts.name,
      form.empty() ? "there is no form of it that does not wait" : fmt::format("say {} instead", form));
}

std::string objection_to_key(std::string_view key, std::string_view objection) {
  return fmt::format("ERR fenceguard: the key '{}' belongs to no resource that can be claimed: {}",
                     shown(key), objection);
}

std::string no_claim_text(std::string_view resource, bool has_fenced) {
  // A library may have opened a connection that has said no FENCE in place of one that had.
  return fmt::format(
      "NOFENCE resource={}: this connection holds no claim to it; say FENCE {} TOKEN HOLDER first{}",
      resource, resource,
      has_fenced ? "" : " (sent again after a lost connection, the first sending may have taken effect)");
}

std::string unknown_command_text(redis::Arguments words, const redis::CommandTable& commands) {
  // Redis shows each word up to its first NUL.
  const auto said = [](std::string_view word, std::size_t most) {
    return word.substr(0, std::min(most, word.find('\0')));
  };
  if (words.size() > 1 && commands.find(words.first(1)) != nullptr) {
    return fmt::format("ERR unknown subcommand '{}'. Try {} HELP.", said(words[1], 128),
                       changed(words[0], std::toupper));
  }
  std::string arguments;
  for (std::size_t i = 1; i < words.size() && arguments.size() < 128; ++i)
    arguments += fmt::format("'{}' ", said(words[i], 128 - arguments.size()));
  return fmt::format("ERR unknown command '{}', with args beginning with: {}", said(words[0], 128),
                     arguments);
}

bool may_be_command(std::string_view name) noexcept {
  return name.size() <= 128 && name.find('\0') == std::string_view::npos;
}

}  // namespace fenceguard::resp
