#include "adapters/redis/wire/commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "adapters/redis/wire/errors.hpp"
#include "guard/error.hpp"
#include "guard/support/read_only_call.hpp"
#include "guard/token.hpp"

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

// Of an array {name, value, name, value, ...}.
const Reply& member(const Reply& map, std::string_view name) {
  for (std::size_t i = 0; i + 1 < map.elements.size(); i += 2) {
    if (map.elements[i].text == name) return map.elements[i + 1];
  }
  throw Unavailable(fmt::format("the server describes a command's keys without '{}'", name));
}

int number(const Reply& map, std::string_view name) {
  return static_cast<int>(member(map, name).integer);
}

// Nothing where the server says that it cannot tell.
std::optional<KeySpec> spec_of(const Reply& description) {
  KeySpec spec;
  const auto& begin = member(description, "begin_search");
  const auto& found = member(description, "find_keys");
  const auto& where = member(begin, "spec");
  const auto& which = member(found, "spec");
  const auto begin_kind = member(begin, "type").text;
  const auto find_kind = member(found, "type").text;
  if (has_flag(member(description, "flags"), "incomplete")) return std::nullopt;
  if (begin_kind == "index") {
    spec.begin = number(where, "index");
  } else if (begin_kind == "keyword" && number(where, "startfrom") > 0) {
    spec.keyword = member(where, "keyword").text;
    spec.begin = number(where, "startfrom");
  } else {
    return std::nullopt;
  }
  if (find_kind == "range") {
    spec.last = number(which, "lastkey");
    spec.limit = number(which, "limit");
  } else if (find_kind == "keynum") {
    spec.is_counted = true;
    spec.count_at = number(which, "keynumidx");
    spec.key_at = number(which, "firstkey");
  } else {
    return std::nullopt;
  }
  spec.step = std::max(1, number(which, "keystep"));
  return spec;
}

// Nothing where the server does not describe all of them. flags, specifications: of the command.
std::optional<std::vector<KeySpec>> specs_of(std::string_view name, const Reply& flags,
                                             const Reply& specifications) {
  // Where SORT keeps its STORE is not described; its patterns name no key (objection_to()).
  if (name == "SORT" || name == "SORT_RO") return {{{.begin = 1}, {.begin = 2, .keyword = "STORE"}}};
  // A module may tell the keys of such a command by code alone.
  if (has_flag(flags, "module") && has_flag(flags, "movablekeys")) return std::nullopt;
  std::vector<KeySpec> specs;
  for (const auto& description : specifications.elements) {
    if (has_flag(member(description, "flags"), "not_key")) continue;
    auto spec = spec_of(description);
    if (!spec) return std::nullopt;
    specs.push_back(*std::move(spec));
  }
  return specs;
}

// An element of COMMAND INFO: name, arity, flags, first key, last key, step, categories, tips, key
// specifications, subcommands.
CommandTable::Facts facts_of(const Reply& info) {
  CommandTable::Facts facts;
  facts.name = upper(info.elements.at(0).text);
  facts.arity = static_cast<int>(info.elements.at(1).integer);
  const auto& flags = info.elements.at(2);
  facts.writes = has_flag(flags, "write");
  facts.reads = has_flag(flags, "readonly");
  facts.needs_memory = has_flag(flags, "denyoom");
  facts.has_subcommands = !info.elements.at(9).elements.empty();
  facts.objection = objection_of(facts, flags);
  if (auto specs = specs_of(facts.name, flags, info.elements.at(8))) {
    facts.keys = *std::move(specs);
  } else if (facts.objection.empty()) {
    facts.objection = "the server does not describe where its keys are";
  }
  return facts;
}

[[noreturn]] void throw_untold(const CommandTable::Facts& facts, std::string_view why) {
  throw InvalidInput(fmt::format("the keys of this {} cannot be told: {}", facts.name, why));
}

// The place of the word behind the keyword; nothing where it is not given. One that stands in the command
// twice is refused, also as a key or a value: of an option that is repeated the server takes the last and
// describes the first.
std::optional<std::int64_t> behind_keyword(const CommandTable::Facts& facts, const KeySpec& spec,
                                           const Command& command) {
  const auto is_keyword = [&](const std::string& word) { return is_same(word, spec.keyword); };
  if (std::count_if(command.begin() + 1, command.end(), is_keyword) > 1)
    throw_untold(facts, fmt::format("'{}' stands in it more than once", spec.keyword));
  const auto begin = command.begin() + std::min<std::ptrdiff_t>(spec.begin, std::ssize(command));
  const auto found = std::find_if(begin, command.end(), is_keyword);
  if (found == command.end()) return std::nullopt;
  return found - command.begin() + 1;
}

// As getKeysUsingKeySpecs() of Redis.
void add_keys(const CommandTable::Facts& facts, const KeySpec& spec, const Command& command,
              std::vector<std::string_view>& keys) {
  const auto count = static_cast<std::int64_t>(command.size());
  std::int64_t first = spec.begin;
  if (!spec.keyword.empty()) {
    const auto behind = behind_keyword(facts, spec, command);
    if (!behind) return;
    first = *behind;
  }
  std::int64_t last = 0;
  if (spec.is_counted) {
    if (first + spec.count_at >= count) throw_untold(facts, "it is too short");
    const auto keys_told = parse_decimal(command[static_cast<std::size_t>(first + spec.count_at)]);
    if (!keys_told || *keys_told < 1 || *keys_told > count) throw_untold(facts, "their number is none");
    first += spec.key_at;
    last = first + (*keys_told - 1) * spec.step;
  } else if (spec.last >= 0) {
    last = first + spec.last;
  } else {
    last = spec.limit == 0 ? count + spec.last : first + (count - first) / spec.limit + spec.last;
  }
  if (last < first || last >= count) throw_untold(facts, "it is too short");
  for (auto i = first; i <= last; i += spec.step) keys.push_back(command[static_cast<std::size_t>(i)]);
}

}  // namespace

CommandTable::~CommandTable() {
  for (const auto& bucket : buckets_) {
    for (const auto* entry = bucket.load(); entry != nullptr;) delete std::exchange(entry, entry->next);
  }
}

CommandTable::Bucket& CommandTable::bucket_of(std::string_view name) noexcept {
  std::size_t hash = 0;
  for (const char c : name) hash = hash * 31 + (static_cast<unsigned char>(c) | 0x20U);
  return buckets_[hash % buckets_.size()];
}

const CommandTable::Facts* CommandTable::find(const Bucket& bucket, std::string_view name) noexcept {
  const auto* entry = bucket.load(std::memory_order_acquire);
  while (entry != nullptr && !is_same(entry->name, name)) entry = entry->next;
  return entry == nullptr ? nullptr : &entry->facts;
}

const CommandTable::Facts& CommandTable::named(const Ask& ask, std::string_view name) {
  auto& bucket = bucket_of(name);
  if (const auto* known = find(bucket, name)) return *known;
  const std::string_view words[] = {"COMMAND", "INFO", name};
  const auto reply = unless_error("looking a command up", read_only_call([&] { return ask(words); }));
  if (reply.elements.empty() || reply.elements.front().elements.size() < 10)
    throw InvalidInput(fmt::format("the server knows no command '{}'", name));
  auto facts = facts_of(reply.elements.front());
  const std::scoped_lock lock{adding_};
  if (const auto* known = find(bucket, name)) return *known;
  bucket.store(new Entry{std::string{name}, std::move(facts), bucket.load()}, std::memory_order_release);
  return bucket.load()->facts;
}

const CommandTable::Facts& CommandTable::facts(const Ask& ask, const Command& command) {
  if (command.empty() || command.front().empty()) throw InvalidInput("a command has at least a name");
  const auto& known = named(ask, command.front());
  if (!known.has_subcommands || command.size() < 2) return known;
  return named(ask, command[0] + "|" + command[1]);
}

std::vector<std::string_view> keys_of(const CommandTable::Facts& facts, const Command& command) {
  std::vector<std::string_view> keys;
  for (const auto& spec : facts.keys) add_keys(facts, spec, command, keys);
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
