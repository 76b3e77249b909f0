#include "adapters/redis/wire/commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "adapters/redis/wire/errors.hpp"
#include "guard/error.hpp"
#include "guard/support/read_only_call.hpp"

namespace fenceguard::redis {
namespace {

constexpr std::string_view leaves_database = "it writes where no fence looks, in another database or server";

unsigned char lower(char c) {
  return static_cast<unsigned char>(std::tolower(static_cast<unsigned char>(c)));
}

bool is_same(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

std::string upper(std::string_view text) {
  std::string result{text};
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

bool has_flag(const Reply& flags, std::string_view name) {
  return std::ranges::any_of(flags.elements, [&](const Reply& flag) { return flag.text == name; });
}

std::string_view objection_of(const CommandTable::Facts& facts, const Reply& flags) {
  const std::string_view name = facts.name;
  // What EVAL and its kin write is not known beforehand; the server lets no script call them either.
  if (has_flag(flags, "noscript") || name.starts_with("EVAL") || name.starts_with("FCALL"))
    return "it cannot be judged and applied in one step";
  if (name == "MOVE" || name == "MIGRATE") return leaves_database;
  if (has_flag(flags, "admin") || has_flag(flags, "asking")) return "it is for administrators and servers";
  if (!facts.writes && !facts.reads) return "it neither writes nor reads a key";
  return {};
}

// An element of COMMAND INFO: name, arity, flags, first key, last key, step, ..., from 7.0 on subcommands.
CommandTable::Facts facts_of(const Reply& info) {
  CommandTable::Facts facts;
  facts.name = upper(info.elements.at(0).text);
  facts.arity = static_cast<int>(info.elements.at(1).integer);
  const auto& flags = info.elements.at(2);
  facts.writes = has_flag(flags, "write");
  facts.reads = has_flag(flags, "readonly");
  facts.has_movable_keys = has_flag(flags, "movablekeys");
  facts.has_subcommands = info.elements.size() > 9 && !info.elements[9].elements.empty();
  facts.objection = objection_of(facts, flags);
  facts.first_key = static_cast<int>(info.elements.at(3).integer);
  facts.last_key = static_cast<int>(info.elements.at(4).integer);
  facts.key_step = std::max(1, static_cast<int>(info.elements.at(5).integer));
  return facts;
}

// The word of the command that reads as key.
std::string_view word_of(const Command& command, std::string_view key) {
  const auto found = std::ranges::find(command, key);
  if (found == command.end())
    throw InvalidInput(fmt::format("the keys of this {} cannot be told", command.front()));
  return *found;
}

}  // namespace

bool CommandTable::CaseLess::operator()(std::string_view a, std::string_view b) const noexcept {
  return std::ranges::lexicographical_compare(a, b, {}, lower, lower);
}

const CommandTable::Facts& CommandTable::look_up(const Ask& ask, const std::string& name) {
  const std::string_view words[] = {"COMMAND", "INFO", name};
  const auto reply = unless_error("looking a command up", read_only_call([&] { return ask(words); }));
  if (reply.elements.empty() || reply.elements.front().elements.size() < 6)
    throw InvalidInput(fmt::format("the server knows no command '{}'", name));
  return facts_.emplace(name, facts_of(reply.elements.front())).first->second;
}

const CommandTable::Facts& CommandTable::facts(const Ask& ask, const Command& command) {
  if (command.empty() || command.front().empty()) throw InvalidInput("a command has at least a name");
  auto found = facts_.find(command.front());
  const auto& known = found != facts_.end() ? found->second : look_up(ask, command.front());
  if (!known.has_subcommands || command.size() < 2) return known;
  const auto name = command[0] + "|" + command[1];
  found = facts_.find(name);
  return found != facts_.end() ? found->second : look_up(ask, name);
}

std::vector<std::string_view> CommandTable::keys(const Ask& ask, const Command& command) {
  const auto& known = facts(ask, command);
  std::vector<std::string_view> keys;
  if (known.has_movable_keys) {
    std::vector<std::string_view> words{"COMMAND", "GETKEYS"};
    words.insert(words.end(), command.begin(), command.end());
    const auto reply = read_only_call([&] { return ask(words); });
    if (reply.is_error())
      throw InvalidInput(fmt::format("the keys of this {} cannot be told: {}", command.front(), reply.text));
    for (const auto& key : reply.elements) keys.push_back(word_of(command, key.text));
    return keys;
  }
  if (known.first_key == 0) return keys;
  const int count = static_cast<int>(command.size());
  const int last = known.last_key < 0 ? count + known.last_key : known.last_key;
  for (int i = known.first_key; i <= last && i < count; i += known.key_step) keys.push_back(command[i]);
  return keys;
}

std::string_view objection_to(const CommandTable::Facts& facts, const Command& command) {
  if (!facts.objection.empty()) return facts.objection;
  const int words = static_cast<int>(command.size());
  if (facts.arity > 0 ? words != facts.arity : words < -facts.arity)
    return "it has too few or too many words";
  const auto has_word = [&](std::string_view word) {
    return std::any_of(command.begin() + 1, command.end(),
                       [&](const std::string& one) { return is_same(one, word); });
  };
  // A key or a value of that name is refused with it, rather than to read its options as the server does.
  if (facts.name == "COPY" && has_word("DB")) return leaves_database;
  if (facts.name == "SORT" || facts.name == "SORT_RO") {
    for (std::size_t i = 2; i + 1 < command.size(); ++i) {
      const bool is_pattern = is_same(command[i], "BY") || is_same(command[i], "GET");
      if (is_pattern && command[i + 1].find('*') != std::string::npos)
        return "its pattern reads keys that it does not name";
    }
  }
  return {};
}

}  // namespace fenceguard::redis
