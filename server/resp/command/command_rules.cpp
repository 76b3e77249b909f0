#include "server/resp/command/command_rules.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace fenceguard::resp {
namespace {

using Facts = redis::CommandTable::Facts;

constexpr std::string_view needs_admin =
    "it is for administrators; connect to Redis itself, or start the guard with --allow-admin";
constexpr std::string_view needs_scripts =
    "a script can write keys that it does not declare; start the guard with --allow-scripts to permit it";
constexpr std::string_view not_here =
    "it is not relayed: it speaks of the connection to Redis, which is shared";
constexpr std::string_view streams = "it is not relayed: what it answers with is no reply";

// What neither reads nor writes a key and passes.
constexpr std::array passing{"PING",     "ECHO",       "TIME",     "ROLE",        "INFO",
                             "LASTSAVE", "PUBLISH",    "SPUBLISH", "LOLWUT",      "COMMAND",
                             "PUBSUB",   "ACL|WHOAMI", "ACL|CAT",  "ACL|GENPASS", "ACL|HELP"};
constexpr std::array passing_kin{"COMMAND|", "PUBSUB|"};
constexpr std::array administrative{"FLUSHALL", "FLUSHDB", "SWAPDB", "MOVE", "MIGRATE", "SHUTDOWN"};
constexpr std::array never{"CLUSTER",         "READONLY",        "READWRITE",           "ASKING",
                           "CLIENT|REPLY",    "REPLCONF",        "RESTORE-ASKING",      "CLIENT|TRACKING",
                           "CLIENT|CACHING",  "CLIENT|GETREDIR", "CLIENT|TRACKINGINFO", "CLIENT|INFO",
                           "CLIENT|NO-TOUCH", "CLIENT|NO-EVICT"};
constexpr std::array streaming{"MONITOR", "SYNC", "PSYNC"};

bool is_among(std::string_view name, std::span<const char* const> names) {
  return std::ranges::any_of(names, [&](std::string_view one) { return one == name; });
}

Rule rule_for_other(const Facts& facts, const Permissions& permissions) {
  const std::string_view name = facts.name;
  if (is_among(name, streaming)) return {Way::refused, streams};
  if (is_among(name, never) || name.starts_with("CLUSTER|")) return {Way::refused, not_here};
  if (is_among(name, passing) || name.ends_with("|HELP")) return {Way::read};
  if (std::ranges::any_of(passing_kin, [&](const char* kin) { return name.starts_with(kin); }))
    return {Way::read};
  if (name == "WAIT" || name == "WAITAOF") return {Way::own};
  if (is_script(name)) return permissions.scripts ? Rule{Way::script} : Rule{Way::refused, needs_scripts};
  if (name == "SCRIPT|LOAD" || name == "SCRIPT|EXISTS" || name == "FUNCTION|LOAD" ||
      name == "FUNCTION|LIST" || name == "FUNCTION|STATS" || name == "FUNCTION|DUMP")
    return permissions.scripts ? Rule{Way::own} : Rule{Way::refused, needs_scripts};
  const bool changes_scripts = name.starts_with("SCRIPT") || name.starts_with("FUNCTION");
  const bool is_for_admin = facts.is_admin || is_among(name, administrative) || changes_scripts ||
                            name.starts_with("CLIENT|") || name.starts_with("DEBUG") ||
                            name.starts_with("CONFIG") || name.starts_with("ACL") ||
                            name.starts_with("MODULE") || name.starts_with("LATENCY") ||
                            name.starts_with("MEMORY") || name.starts_with("SLOWLOG");
  if (is_for_admin) return permissions.admin ? Rule{Way::own} : Rule{Way::refused, needs_admin};
  return {Way::refused, "fenceguard does not know whether it writes"};
}

}  // namespace

Rule rule_for(const Facts& facts, redis::Arguments words, const Permissions& permissions) {
  const bool is_plain = !facts.is_noscript && !facts.is_admin;
  if (facts.reads && is_plain && !facts.objection.empty()) return {Way::refused, facts.objection};
  if (facts.reads && is_plain && !is_script(facts.name)) return {waits(facts, words) ? Way::own : Way::read};
  const bool is_keyed_write = facts.writes && !facts.is_admin && !facts.keys.empty();
  if (!is_keyed_write || is_among(facts.name, administrative) || is_among(facts.name, never))
    return rule_for_other(facts, permissions);
  if (facts.name == "COPY" &&
      std::ranges::any_of(words, [](auto word) { return redis::is_option(word, "DB"); }))
    return permissions.admin ? Rule{Way::own} : Rule{Way::refused, needs_admin};
  return {Way::write};
}

bool waits(const Facts& facts, redis::Arguments words) {
  if (!facts.may_block) return false;
  if (facts.name != "XREAD" && facts.name != "XREADGROUP") return true;
  // A key or a group of that name is taken for the option, rather than to read them as the server does.
  return std::any_of(words.begin() + 1, words.end(),
                     [](auto word) { return redis::is_option(word, "BLOCK"); });
}

bool is_script(std::string_view name) noexcept {
  return name.starts_with("EVAL") || name.starts_with("FCALL");
}

std::string_view form_without_waiting(std::string_view name) noexcept {
  constexpr std::array forms{std::pair{"BLPOP", "LPOP"},
                             std::pair{"BRPOP", "RPOP"},
                             std::pair{"BLMOVE", "LMOVE"},
                             std::pair{"BRPOPLPUSH", "RPOPLPUSH"},
                             std::pair{"BLMPOP", "LMPOP"},
                             std::pair{"BZPOPMIN", "ZPOPMIN"},
                             std::pair{"BZPOPMAX", "ZPOPMAX"},
                             std::pair{"BZMPOP", "ZMPOP"},
                             std::pair{"XREADGROUP", "XREADGROUP without BLOCK"}};
  for (const auto& [waiting, form] : forms)
    if (name == waiting) return form;
  return {};
}

bool reaches_reserved(const Facts& facts, redis::Arguments words, const redis::Keys& keys) {
  if (facts.name == "MIGRATE" || facts.name.starts_with("DEBUG"))
    return std::ranges::any_of(words, [&](auto word) { return keys.is_reserved(word); });
  if (!redis::reads_by_pattern(facts, words)) return false;
  for (std::size_t i = 2; i + 1 < words.size(); ++i) {
    if (!redis::is_option(words[i], "BY") && !redis::is_option(words[i], "GET")) continue;
    const auto pattern = words[i + 1];
    const auto star = pattern.find('*');
    if (star == pattern.npos) continue;
    // What stands before the star is how the key begins, whatever takes the star's place.
    if (keys.could_be_reserved(pattern.substr(0, star))) return true;
  }
  return false;
}

}  // namespace fenceguard::resp
