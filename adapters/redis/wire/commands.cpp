#include "adapters/redis/wire/commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "adapters/redis/wire/errors.hpp"
#include "guard/error.hpp"
#include "guard/support/read_only_call.hpp"
#include "guard/token.hpp"

namespace fenceguard::redis {
namespace {

constexpr std::string_view leaves_database = "it writes where no fence looks, in another database or server";

// Commands that block, and what is said of each. A script does not wait; outside of one they take effect at a
// moment when no claim is judged. XREAD and XREADGROUP block by an option.
constexpr std::string_view blocks_by_option = "it blocks; without BLOCK it does not";
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> blocking{{
    {"BLMOVE", "it blocks; LMOVE does not"},
    {"BLMPOP", "it blocks; LMPOP does not"},
    {"BLPOP", "it blocks; LPOP does not"},
    {"BRPOP", "it blocks; RPOP does not"},
    {"BRPOPLPUSH", "it blocks; RPOPLPUSH does not"},
    {"BZMPOP", "it blocks; ZMPOP does not"},
    {"BZPOPMAX", "it blocks; ZPOPMAX does not"},
    {"BZPOPMIN", "it blocks; ZPOPMIN does not"},
    {"WAIT",
     "it blocks; it writes nothing and needs no claim"},  // flagged by Valkey, and by Redis from 7.2 on
    {"WAITAOF", "it blocks; it writes nothing and needs no claim"},
}};

bool blocks_by_words(std::string_view name) {
  return name == "XREAD" || name == "XREADGROUP";
}

constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

bool is_same(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() &&
         std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

std::string upper(std::string_view text) {
  std::string result{text};
  for (char& c : result) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - ('a' - 'A'));
  }
  return result;
}

bool has_flag(const Reply& flags, std::string_view name) {
  return std::ranges::any_of(flags.elements, [&](const Reply& flag) { return flag.text == name; });
}

std::string_view objection_of(const CommandTable::Facts& facts, const Reply& flags) {
  const std::string_view name = facts.name;
  if (facts.may_block && !blocks_by_words(name)) {
    const auto* const found = std::ranges::find(blocking, name, &decltype(blocking)::value_type::first);
    return found != blocking.end() ? found->second : "it blocks";
  }
  // What EVAL and its kin write is not known beforehand; the server lets no script call them either.
  if (facts.is_noscript || name.starts_with("EVAL") || name.starts_with("FCALL"))
    return "it cannot be judged and applied in one step";
  if (name == "MOVE" || name == "MIGRATE") return leaves_database;
  if (facts.is_admin || has_flag(flags, "asking")) return "it is for administrators and servers";
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
  facts.may_block = has_flag(flags, "blocking");
  facts.is_admin = has_flag(flags, "admin");
  facts.is_noscript = has_flag(flags, "noscript");
  facts.is_pubsub = has_flag(flags, "pubsub");
  facts.has_subcommands = !info.elements.at(9).elements.empty();
  facts.objection = objection_of(facts, flags);
  if (auto specs = specs_of(facts.name, flags, info.elements.at(8))) {
    facts.keys = *std::move(specs);
  } else if (facts.objection.empty()) {
    facts.objection = "the server does not describe where its keys are";
  }
  return facts;
}

// Whether the option BLOCK stands among those of an XREAD or XREADGROUP, which end at STREAMS.
bool has_block_option(Arguments words) {
  for (std::size_t i = 1; i < words.size() && !is_option(words[i], "STREAMS"); ++i) {
    if (is_option(words[i], "BLOCK")) return true;
    if (is_option(words[i], "COUNT")) i += 1;
    if (is_option(words[i], "GROUP")) i += 2;
  }
  return false;
}

[[noreturn]] void throw_untold(const CommandTable::Facts& facts, std::string_view why) {
  throw InvalidInput(fmt::format("the keys of this {} cannot be told: {}", facts.name, why));
}

// The place of the word behind the keyword; nothing where it is not given. One that stands in the command
// twice is refused, also as a key or a value: of an option that is repeated the server takes the last and
// describes the first.
std::optional<std::int64_t> behind_keyword(const CommandTable::Facts& facts, const KeySpec& spec,
                                           Arguments words) {
  const auto is_keyword = [&](std::string_view word) { return is_option(word, spec.keyword); };
  if (std::count_if(words.begin() + 1, words.end(), is_keyword) > 1)
    throw_untold(facts, fmt::format("'{}' stands in it more than once", spec.keyword));
  const auto begin = words.begin() + std::min<std::ptrdiff_t>(spec.begin, std::ssize(words));
  const auto found = std::find_if(begin, words.end(), is_keyword);
  if (found == words.end()) return std::nullopt;
  return found - words.begin() + 1;
}

// As getKeysUsingKeySpecs() of Redis.
void add_keys(const CommandTable::Facts& facts, const KeySpec& spec, Arguments words,
              std::vector<std::string_view>& keys) {
  const auto count = static_cast<std::int64_t>(words.size());
  std::int64_t first = spec.begin;
  if (!spec.keyword.empty()) {
    const auto behind = behind_keyword(facts, spec, words);
    if (!behind) return;
    first = *behind;
  }
  std::int64_t last = 0;
  if (spec.is_counted) {
    if (first + spec.count_at >= count) throw_untold(facts, "it is too short");
    const auto keys_told = parse_decimal(words[static_cast<std::size_t>(first + spec.count_at)]);
    if (!keys_told || *keys_told < 1 || *keys_told > count) throw_untold(facts, "their number is none");
    first += spec.key_at;
    last = first + (*keys_told - 1) * spec.step;
  } else if (spec.keyword.empty() && first == count) {
    return;  // PFMERGE with its destination alone
  } else if (spec.last >= 0) {
    last = first + spec.last;
  } else {
    last = spec.limit == 0 ? count + spec.last : first + (count - first) / spec.limit + spec.last;
  }
  if (last < first || last >= count) throw_untold(facts, "it is too short");
  for (auto i = first; i <= last; i += spec.step) keys.push_back(words[static_cast<std::size_t>(i)]);
}

// Of what COMMAND and COMMAND INFO answer for a command.
constexpr std::size_t info_parts = 10;

void require_array(const Reply& answer) {
  if (answer.kind != Reply::Kind::array) throw Unavailable("the server does not describe its commands");
}

std::vector<std::string_view> views_of(const Command& command) {
  return {command.begin(), command.end()};
}

}  // namespace

CommandTable::~CommandTable() {
  for (const auto& bucket : buckets_) {
    for (const auto* entry = bucket.load(); entry != nullptr;) delete std::exchange(entry, entry->next);
  }
}

std::size_t CommandTable::place_of(std::string_view name, std::string_view subcommand) noexcept {
  std::size_t hash = 0;
  for (const char c : name) hash = hash * 31 + static_cast<unsigned char>(lower(c));
  for (const char c : subcommand) hash = hash * 31 + static_cast<unsigned char>(lower(c));
  return hash % buckets_count;
}

const CommandTable::Facts* CommandTable::find(std::string_view name,
                                              std::string_view subcommand) const noexcept {
  const auto* entry = buckets_[place_of(name, subcommand)].load(std::memory_order_acquire);
  while (entry != nullptr && !(is_same(entry->name, name) && is_same(entry->subcommand, subcommand)))
    entry = entry->next;
  return entry == nullptr ? nullptr : &entry->facts;
}

const CommandTable::Facts* CommandTable::find(Arguments words) const noexcept {
  if (words.empty()) return nullptr;
  const auto* known = find(words[0], {});
  if (known == nullptr || !known->has_subcommands || words.size() < 2) return known;
  return words[1].empty() ? nullptr : find(words[0], words[1]);
}

// REQUIRES: adding_ is held.
void CommandTable::add(std::string_view name, std::string_view subcommand, const Reply& info) {
  auto facts = facts_of(info);
  const auto* known = find(name, subcommand);
  if (known != nullptr && *known == facts) return;
  auto& bucket = buckets_[place_of(name, subcommand)];
  bucket.store(new Entry{std::string{name}, std::string{subcommand}, std::move(facts), bucket.load()},
               std::memory_order_release);
}

void CommandTable::add_whole(std::string_view name, const Reply& info) {
  if (info.elements.size() < info_parts) return;
  // The subcommands first, so that the command is found with all of them.
  for (const auto& part : info.elements[info_parts - 1].elements) {
    if (part.elements.size() < info_parts) continue;
    const std::string_view whole = part.elements[0].text;
    if (const auto bar = whole.find('|'); bar != whole.npos) add(name, whole.substr(bar + 1), part);
  }
  add(name, {}, info);
}

void CommandTable::learn(const Reply& all) {
  require_array(all);
  const std::scoped_lock lock{adding_};
  for (const auto& info : all.elements) {
    if (!info.elements.empty()) add_whole(info.elements[0].text, info);
  }
}

void CommandTable::learn(Arguments names, const Reply& infos) {
  require_array(infos);
  const std::scoped_lock lock{adding_};
  const auto count = std::min(names.size(), infos.elements.size());
  for (std::size_t i = 0; i < count; ++i) {
    // 'XGROUP|CREATE' is not called by that name.
    if (names[i].find('|') == names[i].npos) add_whole(names[i], infos.elements[i]);
  }
}

const CommandTable::Facts& CommandTable::facts(const Ask& ask, const Command& command) {
  if (command.empty() || command.front().empty()) throw InvalidInput("a command has at least a name");
  const std::string_view first_two[] = {command[0], command.size() < 2 ? std::string_view{} : command[1]};
  const auto words = Arguments{first_two}.first(std::min<std::size_t>(2, command.size()));
  if (const auto* known = find(words)) return *known;
  const auto asked = [&](Arguments request) {
    return unless_error("looking a command up", read_only_call([&] { return ask(request); }));
  };
  Reply list;
  std::vector<std::string_view> request{"COMMAND", "INFO", command[0]};
  if (!has_all_.load()) {
    const std::string_view list_names[] = {"COMMAND", "LIST"};
    list = asked(list_names);
    for (const auto& name : list.elements) {
      if (name.text.find('|') == name.text.npos) request.push_back(name.text);
    }
  }
  learn(Arguments{request}.subspan(2), asked(request));
  has_all_.store(true);
  if (const auto* known = find(words)) return *known;
  const bool is_known = find(words.first(1)) != nullptr;
  throw InvalidInput(fmt::format("the server knows no command '{}{}{}'", command[0], is_known ? "|" : "",
                                 is_known ? command[1] : ""));
}

void keys_of(const CommandTable::Facts& facts, Arguments words, std::vector<std::string_view>& keys) {
  for (const auto& spec : facts.keys) add_keys(facts, spec, words, keys);
}

std::vector<std::string_view> keys_of(const CommandTable::Facts& facts, const Command& command) {
  std::vector<std::string_view> keys;
  keys_of(facts, views_of(command), keys);
  return keys;
}

bool is_option(std::string_view word, std::string_view name) noexcept {
  return is_same(word.substr(0, word.find('\0')), name);
}

bool reads_by_pattern(const CommandTable::Facts& facts, Arguments words) {
  if (facts.name != "SORT" && facts.name != "SORT_RO") return false;
  for (std::size_t i = 2; i + 1 < words.size(); ++i) {
    const bool is_pattern = is_option(words[i], "BY") || is_option(words[i], "GET");
    if (is_pattern && words[i + 1].find('*') != std::string_view::npos) return true;
  }
  return false;
}

std::string_view objection_to(const CommandTable::Facts& facts, Arguments words) {
  if (!facts.objection.empty()) return facts.objection;
  const auto count = static_cast<int>(words.size());
  if (facts.arity > 0 ? count != facts.arity : count < -facts.arity)
    return "it has too few or too many words";
  if (blocks_by_words(facts.name) && has_block_option(words)) return blocks_by_option;
  const auto has_word = [&](std::string_view word) {
    return std::any_of(words.begin() + 1, words.end(),
                       [&](std::string_view one) { return is_option(one, word); });
  };
  // A key or a value of that name is refused with it, rather than to read its options as the server does.
  if (facts.name == "COPY" && has_word("DB")) return leaves_database;
  if (reads_by_pattern(facts, words)) return "its pattern reads keys that it does not name";
  return {};
}

std::string_view objection_to(const CommandTable::Facts& facts, const Command& command) {
  return objection_to(facts, views_of(command));
}

}  // namespace fenceguard::redis
