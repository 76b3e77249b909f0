#include "server/postgres/relay/statements.hpp"

#include <pg_query.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace fenceguard::pgwire {
namespace {

// What the scanner tells is a message of protobuf: tokens, with where each begins and ends.
constexpr std::uint64_t tokens_field = 2, begin_field = 1, end_field = 2;
constexpr std::size_t words_max = 32;  // so many of a statement are looked at

std::uint64_t take_varint(std::string_view& bytes) noexcept {
  std::uint64_t value = 0;
  for (int shift = 0; !bytes.empty() && shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if ((byte & 0x80U) == 0) break;
  }
  return value;
}

// A field's number and value: itself, or for bytes their length.
struct Field {
  std::uint64_t number = 0, value = 0;
  bool is_bytes = false;
};
Field take_field(std::string_view& bytes) noexcept {
  const auto tag = take_varint(bytes);
  return {.number = tag >> 3, .value = take_varint(bytes), .is_bytes = (tag & 7) == 2};
}

// end: of the token, in text.
std::string_view token_in(std::string_view token, std::string_view text, std::size_t& end_of_token) noexcept {
  std::uint64_t begin = 0, end = 0;
  while (!token.empty()) {
    const auto field = take_field(token);
    if (field.is_bytes) token.remove_prefix(std::min<std::size_t>(token.size(), field.value));
    if (field.number == begin_field) begin = field.value;
    if (field.number == end_field) end = field.value;
  }
  if (begin > end || end > text.size()) return {};
  end_of_token = end;
  // Of these the scanner does not tell the whole.
  if (text.substr(begin, 2) == "U&" || text.substr(begin, 2) == "u&") return text.substr(begin, 2);
  return text.substr(begin, end - begin);
}

// As an unquoted name or a keyword is read; of a quoted one what is between the quotes.
std::string word_of(std::string_view token) {
  if (token.size() >= 2 && token.front() == '"') token = token.substr(1, token.size() - 2);
  std::string word{token.substr(0, 64)};
  std::ranges::transform(word, word.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  return word;
}

bool is_comment(std::string_view token) noexcept {
  return token.starts_with("--") || token.starts_with("/*");
}

using Words = std::vector<std::string>;

bool has(const Words& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}
bool is_at(const Words& words, std::size_t at, std::string_view word) {
  return words.size() > at && words[at] == word;
}

Kind kind_of_end(const Words& words) {
  const std::size_t next = is_at(words, 1, "work") || is_at(words, 1, "transaction") ? 2 : 1;
  if (words[0] == "rollback" && is_at(words, next, "to")) return Kind::rollback_to;
  if (is_at(words, 1, "prepared")) return Kind::refused;
  return has(words, "chain") && !has(words, "no") ? Kind::chain : Kind::end;
}

Kind kind_of_set(const Words& words) {
  const bool names_default = has(words, "default_transaction_read_only");
  const bool is_odd = std::ranges::any_of(words, [](const auto& word) { return word.starts_with("u&"); });
  if (words[0] == "set" && (names_default || is_odd)) return Kind::refused;
  if (words[0] == "set" && is_at(words, 1, "session") && is_at(words, 2, "characteristics"))
    return has(words, "write") || words.size() == words_max ? Kind::refused : Kind::passive;
  if (words[0] == "set" &&
      (is_at(words, 1, "transaction") || (is_at(words, 1, "local") && is_at(words, 2, "transaction"))))
    return Kind::set_transaction;
  return Kind::passive;
}

Kind kind_of(const Words& words) {
  constexpr std::array passive{"show", "reset"};
  constexpr std::array ends{"commit", "end", "rollback", "abort"};
  const auto& first = words.front();
  if (first.empty()) return Kind::ordinary;
  if (std::ranges::find(ends, first) != ends.end()) return kind_of_end(words);
  if (first == "begin" || first == "start") return Kind::begin;
  if (first == "set") return kind_of_set(words);
  if (std::ranges::find(passive, first) != passive.end()) return Kind::passive;
  if (first == "discard" && is_at(words, 1, "all")) return Kind::discard;
  if (first == "call" || first == "do") return Kind::call;
  if (first == "prepare" && is_at(words, 1, "transaction")) return Kind::refused;
  return Kind::ordinary;
}

const char* why_refused(const Words& words) {
  if (words.front() == "set")
    return "default_transaction_read_only is what keeps a session that is fenced from writing without its "
           "claim, and "
           "may not be set in one";
  return "a prepared transaction outlives the session whose claim it was written under, and is not relayed "
         "in one that "
         "is fenced";
}

class Gathering {
 public:
  // end: where it ends in the text.
  void add(std::string_view token, std::size_t end) {
    if (token == ";") return end_statement(end);
    if (words_.empty() && token.starts_with('"')) token = {};  // no keyword
    if (words_.size() < words_max) words_.push_back(word_of(token));
  }
  void end_statement(std::size_t end) {
    if (words_.empty()) return;
    const auto kind = kind_of(words_);
    if (kind == Kind::begin || ends(kind)) found_.has_control = true;
    if (ends(found_.last) || (kind == Kind::begin && found_.count > 0)) found_.has_inner_control = true;
    if (found_.count++ == 0) {
      found_.kind = kind;
      found_.is_preamble = kind == Kind::begin;
      if (found_.is_preamble) found_.behind_begin = found_.behind_preamble = {end, 1};
    } else if (is_leading_ && found_.is_preamble &&
               (kind == Kind::set_transaction || kind == Kind::passive)) {
      found_.behind_preamble = {end, found_.count};
    } else if (!ends(kind)) {
      found_.is_preamble = false;
    }
    found_.last = kind;
    if (kind == Kind::rollback_to) ++found_.rollbacks_to;
    if (kind == Kind::refused) {
      found_.kind = kind;
      if (found_.why == nullptr) found_.why = why_refused(words_);
    }
    if (is_leading_ && (kind == Kind::begin || kind == Kind::set_transaction)) look_for_mode();
    is_leading_ = is_leading_ && (kind == Kind::set_transaction || kind == Kind::passive ||
                                  (kind == Kind::begin && found_.count == 1));
    words_.clear();
  }
  [[nodiscard]] const Statements& found() const noexcept { return found_; }

 private:
  static bool ends(Kind kind) noexcept { return kind == Kind::end || kind == Kind::chain; }
  void look_for_mode() {
    for (std::size_t i = 0; i + 1 < words_.size(); ++i) {
      if (words_[i] != "read" || (words_[i + 1] != "only" && words_[i + 1] != "write")) continue;
      found_.says_read_only = words_[i + 1] == "only";
      found_.says_read_write = !found_.says_read_only;
    }
  }

  Words words_;
  bool is_leading_ = true;  // nothing that writes, or takes a snapshot, came before
  Statements found_;
};

// Nothing where the scanner does not get through. is_whole: text is not the beginning of a longer one.
std::optional<Statements> scan(const char* text, std::size_t size, bool is_whole) {
  const auto freed = [](PgQueryScanResult* result) { pg_query_free_scan_result(*result); };
  auto result = pg_query_scan(text);
  const std::unique_ptr<PgQueryScanResult, decltype(freed)> owner{&result, freed};
  if (result.error != nullptr) return std::nullopt;
  std::string_view tokens{result.pbuf.data, result.pbuf.len};
  Gathering gathering;
  std::size_t seen = 0;
  while (!tokens.empty()) {
    const auto field = take_field(tokens);
    if (!field.is_bytes) continue;
    const auto token = tokens.substr(0, field.value);
    tokens.remove_prefix(token.size());
    if (field.number != tokens_field) continue;
    std::size_t end = 0;
    const auto word = token_in(token, {text, size}, end);
    // White space from PostgreSQL 16 on, of which the scanner of 15 knows nothing: a text of its own may end
    // elsewhere at the server.
    if (word == "\v") return std::nullopt;
    if (is_comment(word)) continue;
    gathering.add(word, end);
    ++seen;
  }
  if (!is_whole && seen <= words_max) return std::nullopt;
  gathering.end_statement(size);
  return gathering.found();
}

}  // namespace

Statements classify_statements(const std::string& text) {
  constexpr std::size_t beginning = 2048;
  // Of a single statement only the beginning counts, and the scanner takes many times the memory of a text.
  const auto last = text.find_last_not_of("; \t\r\n");
  const bool is_single = text.find(';') > last;
  if (is_single && text.size() > 2 * beginning) {
    if (auto found = scan(text.substr(0, beginning).c_str(), beginning, false)) return *found;
  }
  if (auto found = scan(text.c_str(), text.size(), true)) return *found;
  Statements broken;
  broken.is_broken = true;
  return broken;
}

}  // namespace fenceguard::pgwire
