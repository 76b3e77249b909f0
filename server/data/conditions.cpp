#include "server/data/conditions.hpp"

#include <algorithm>

#include "guard/support/text.hpp"

namespace fenceguard {
namespace {

bool is_etag_character(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  return byte == 0x21 || (byte >= 0x23 && byte <= 0x7E) || byte >= 0x80;
}

// Length of the entity tag that text starts with, quotes included; 0 if there is none.
std::size_t etag_length(std::string_view text) noexcept {
  const std::size_t quote = text.starts_with("W/") ? 2 : 0;
  if (quote >= text.size() || text[quote] != '"') return 0;
  for (std::size_t i = quote + 1; i < text.size(); ++i) {
    if (text[i] == '"') return i + 1;
    if (!is_etag_character(text[i])) return 0;
  }
  return 0;
}

// Appends the list in one field line to condition. False if it is malformed.
bool parse_line(std::string_view line, Precondition& condition) {
  const auto skip = [&line](std::string_view characters) {
    line.remove_prefix(std::min(line.find_first_not_of(characters), line.size()));
  };
  skip(" \t");
  if (line.starts_with('*')) {
    condition.any = true;
    line.remove_prefix(1);
    skip(" \t");
    return line.empty();
  }
  for (skip(" \t,"); !line.empty(); skip(" \t,")) {
    const auto length = etag_length(line);
    if (length == 0) return false;
    condition.etags.emplace_back(line.substr(0, length));
    line.remove_prefix(length);
    skip(" \t");
    if (!line.empty() && line.front() != ',') return false;
  }
  return true;
}

// Nothing if the field is not there. False in ok if it is malformed.
std::optional<Precondition> parse_field(const http::Fields& fields, std::string_view wanted, bool& ok) {
  std::optional<Precondition> condition;
  int lines = 0;
  for (const auto& [name, value] : fields) {
    if (!equals_ignoring_case(name, wanted)) continue;
    if (!condition) condition.emplace();
    ++lines;
    ok = ok && parse_line(value, *condition);
  }
  if (condition) {
    if (condition->any && (lines > 1 || !condition->etags.empty())) ok = false;
    if (!condition->any && condition->etags.empty()) ok = false;
  }
  return condition;
}

std::string_view without_weakness(std::string_view etag) {
  return etag.starts_with("W/") ? etag.substr(2) : etag;
}

}  // namespace

std::variant<Conditions, BadConditions> parse_conditions(const http::Fields& fields) {
  Conditions conditions;
  bool ok = true;
  conditions.if_match = parse_field(fields, "If-Match", ok);
  if (!ok) return BadConditions{"If-Match is '*' or a list of quoted entity tags."};
  conditions.if_none_match = parse_field(fields, "If-None-Match", ok);
  if (!ok) return BadConditions{"If-None-Match is '*' or a list of quoted entity tags."};
  return conditions;
}

ReadCondition evaluate_read(const Conditions& conditions, std::string_view etag) {
  const bool exists = !etag.empty();
  if (const auto& wanted = conditions.if_match) {
    // Strong comparison: a weak tag matches nothing.
    const bool matches = wanted->any || std::ranges::find(wanted->etags, etag) != wanted->etags.end();
    if (!exists || !matches || etag.starts_with("W/")) return ReadCondition::failed;
  }
  if (const auto& known = conditions.if_none_match; known && exists) {
    const auto same = [&](const std::string& tag) { return without_weakness(tag) == without_weakness(etag); };
    if (known->any || std::ranges::any_of(known->etags, same)) return ReadCondition::not_modified;
  }
  return ReadCondition::proceed;
}

}  // namespace fenceguard
