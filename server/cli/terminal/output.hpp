#pragma once

// Output: what commands print, for people as 'name value' lines and for programs as one JSON object, and the
// exit statuses that scripts rely on. Numbers that can exceed 2^53 are strings in JSON.

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "guard/error.hpp"
#include "guard/token.hpp"

namespace fenceguard::cli {

inline constexpr int exit_done = 0;
inline constexpr int exit_refused = 1;  // a clear 'no': stale, conflict, held, not found
inline constexpr int exit_usage = 2;
inline constexpr int exit_fault = 3;    // nothing was done
inline constexpr int exit_unknown = 4;  // it may or may not have been done

[[nodiscard]] int exit_status(FaultKind kind) noexcept;

// A sentence on stderr, on one line. What cannot be written there is lost, and changes nothing else.
void complain(std::string_view sentence) noexcept;

// So many columns a line of text on stdout may have: those of the terminal, within bounds.
inline constexpr std::size_t columns_min = 60;
inline constexpr std::size_t columns_max = 100;
[[nodiscard]] std::size_t output_columns();

// A name or sentence as it can be put on a terminal: what would move, hide or turn round the text beside it
// (control characters, marks of direction, characters without width) is written '\u{202E}', and a byte that
// is no part of a character '\x{C3}'.
[[nodiscard]] std::string shown(std::string_view text);

// Named values in the order in which they were added.
class Report {
 public:
  Report& add(std::string_view name, std::string_view value);
  Report& add(std::string_view name, Token value) { return add(name, to_string(value)); }
  // As a number in JSON. REQUIRES: it stays below 2^53.
  Report& add_number(std::string_view name, std::int64_t value);
  // 0 means none and is left out.
  Report& add_token(std::string_view name, std::int64_t value);
  Report& add_flag(std::string_view name, bool value);

  [[nodiscard]] const boost::json::object& json() const noexcept { return object_; }
  // 'name value' lines, or one line of JSON, on stdout.
  void print(bool as_json) const;

 private:
  boost::json::object object_;
};

// An entry of a listing, with its resource and token, and what a line for people says after these.
struct ListedEntry {
  Report report;
  std::string rest{};
};
// A page of a listing: a line each, and on stderr how to go on; or one line of JSON, the entries under name.
void print_page(std::string_view name, const std::vector<ListedEntry>& entries, bool has_more, bool as_json);

// Prints text on stdout. Throws OutcomeUnknown if it cannot be written: what was done was done, unseen.
void print_out(std::string_view text);

// Who runs this, for a record of what was done by hand: 'user@host'.
[[nodiscard]] std::string user_at_host();

}  // namespace fenceguard::cli
