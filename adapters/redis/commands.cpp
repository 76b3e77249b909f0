#include "adapters/redis/commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "adapters/redis/errors.hpp"
#include "guard/error.hpp"

namespace fenceguard::redis {
namespace {

std::string upper(std::string_view text) {
  std::string result{text};
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

// Looking changes nothing, so an answer that was not seen is no more than that.
Reply look(Connection& connection, Arguments arguments) {
  try {
    return connection.call(arguments);
  } catch (const OutcomeUnknown& error) {
    throw Unavailable(error.what());
  }
}

bool has_flag(const Reply& flags, std::string_view name) {
  return std::ranges::any_of(flags.elements, [&](const Reply& flag) { return flag.text == name; });
}

// An element of COMMAND INFO: name, arity, flags, first key, last key, step, ...
CommandTable::Facts facts_of(const Reply& info, const std::string& name) {
  CommandTable::Facts facts;
  const auto& flags = info.elements.at(2);
  facts.writes = has_flag(flags, "write");
  facts.reads = has_flag(flags, "readonly");
  facts.is_for_scripts = !has_flag(flags, "noscript");
  facts.runs_scripts = name.starts_with("EVAL") || name.starts_with("FCALL");
  facts.leaves_database = name == "MOVE";
  facts.has_movable_keys = has_flag(flags, "movablekeys");
  facts.first_key = static_cast<int>(info.elements.at(3).integer);
  facts.last_key = static_cast<int>(info.elements.at(4).integer);
  facts.key_step = std::max(1, static_cast<int>(info.elements.at(5).integer));
  return facts;
}

}  // namespace

const CommandTable::Facts& CommandTable::facts(Connection& connection, const Command& command) {
  if (command.empty()) throw InvalidInput("a command has at least a name");
  const auto name = upper(command.front());
  if (const auto found = facts_.find(name); found != facts_.end()) return found->second;
  const std::string_view words[] = {"COMMAND", "INFO", name};
  const auto reply = unless_error("looking a command up", look(connection, words));
  if (reply.elements.empty() || reply.elements.front().elements.size() < 6)
    throw InvalidInput(fmt::format("the server knows no command '{}'", command.front()));
  return facts_.emplace(name, facts_of(reply.elements.front(), name)).first->second;
}

std::vector<std::string> CommandTable::keys(Connection& connection, const Command& command) {
  const auto& known = facts(connection, command);
  std::vector<std::string> keys;
  if (known.has_movable_keys) {
    std::vector<std::string_view> words{"COMMAND", "GETKEYS"};
    words.insert(words.end(), command.begin(), command.end());
    const auto reply = look(connection, words);
    if (reply.is_error())
      throw InvalidInput(fmt::format("the keys of this {} cannot be told: {}", command.front(), reply.text));
    for (const auto& key : reply.elements) keys.push_back(key.text);
    return keys;
  }
  if (known.first_key == 0) return keys;
  const int count = static_cast<int>(command.size());
  const int last = known.last_key < 0 ? count + known.last_key : known.last_key;
  for (int i = known.first_key; i <= last && i < count; i += known.key_step) keys.push_back(command[i]);
  return keys;
}

}  // namespace fenceguard::redis
