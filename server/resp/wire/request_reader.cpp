#include "server/resp/wire/request_reader.hpp"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

constexpr std::size_t line_bytes_max = 64 * 1024;
constexpr std::size_t places_kept_max = 1024;

bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

char unescaped(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'b':
      return '\b';
    case 'a':
      return '\a';
    default:
      return c;
  }
}

// The only spelling of a number: as string2ll() of Redis.
bool parse(std::string_view text, long long& number) {
  const auto digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || (digits[0] == '0' && text.size() > 1)) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

// One word of an inline command from at on, which is no space, as sdssplitargs() of Redis. False: quotes are
// not closed, or text follows them.
bool take_word(std::string_view line, std::size_t& at, std::string& word) {
  for (char quote = 0;; ++at) {
    if (at >= line.size()) return quote == 0;
    const char c = line[at];
    if (quote == 0) {
      if (is_space(c)) return true;
      if (c == '"' || c == '\'') {
        quote = c;
      } else {
        word.push_back(c);
      }
      continue;
    }
    if (c == quote) {
      ++at;
      return at == line.size() || is_space(line[at]);
    }
    const bool has_next = c == '\\' && at + 1 < line.size();
    if (quote == '"' && has_next && line[at + 1] == 'x' && at + 3 < line.size() &&
        hex_value(line[at + 2]) >= 0 && hex_value(line[at + 3]) >= 0) {
      word.push_back(static_cast<char>(hex_value(line[at + 2]) * 16 + hex_value(line[at + 3])));
      at += 3;
    } else if (quote == '"' && has_next) {
      word.push_back(unescaped(line[++at]));
    } else if (quote == '\'' && has_next && line[at + 1] == '\'') {
      word.push_back(line[++at]);
    } else {
      word.push_back(c);
    }
  }
}

}  // namespace

void RequestReader::begin() {
  is_done_ = false;
  at_ = 0;
  words_left_ = word_bytes_ = -1;
  places_.clear();
  words_.clear();
  if (places_.capacity() > places_kept_max) {
    free_memory(places_);
    free_memory(words_);
  }
}

RequestReader::Outcome RequestReader::fail(std::string_view what) {
  is_done_ = true;
  error_ = fmt::format("Protocol error: {}", what);
  return Outcome::malformed;
}

RequestReader::Outcome RequestReader::read(std::string_view bytes, const RequestLimits& limits) {
  if (is_done_) begin();
  if (bytes.empty()) return Outcome::part;
  is_inline_ = bytes.front() != '*';
  if (is_inline_) return read_inline(bytes, limits);
  if (words_left_ < 0) {
    const auto outcome = read_number(bytes, "mbulk count string", words_left_);
    if (outcome != Outcome::whole) return outcome;
    if (words_left_ > static_cast<long long>(limits.words_max))
      return fail(fmt::format("{} multibulk length", limits.which));
    if (words_left_ <= 0) {
      is_done_ = true;
      return Outcome::nothing;
    }
  }
  return read_words(bytes, limits);
}

RequestReader::Outcome RequestReader::read_number(std::string_view bytes, std::string_view what_is_big,
                                                  long long& number) {
  const auto end = bytes.find(line_end, at_);
  if (end == bytes.npos) {
    if (bytes.size() - at_ > line_bytes_max) return fail(fmt::format("too big {}", what_is_big));
    return Outcome::part;
  }
  const bool is_bulk = words_left_ >= 0;
  long long value = 0;
  if (!parse(bytes.substr(at_ + 1, end - at_ - 1), value))
    return fail(is_bulk ? "invalid bulk length" : "invalid multibulk length");
  number = value;
  at_ = end + line_end.size();
  return Outcome::whole;
}

RequestReader::Outcome RequestReader::read_words(std::string_view bytes, const RequestLimits& limits) {
  while (words_left_ > 0) {
    if (word_bytes_ < 0) {
      if (at_ >= bytes.size()) return Outcome::part;
      if (bytes[at_] != '$') return fail(fmt::format("expected '$', got '{}'", bytes[at_]));
      const auto outcome = read_number(bytes, "bulk count string", word_bytes_);
      if (outcome != Outcome::whole) return outcome;
      if (word_bytes_ < 0) return fail("invalid bulk length");
      if (static_cast<std::size_t>(word_bytes_) > limits.bytes_max ||
          at_ + static_cast<std::size_t>(word_bytes_) > limits.bytes_max)
        return fail(fmt::format("{} bulk length", limits.which));
    }
    const auto size = static_cast<std::size_t>(word_bytes_);
    if (bytes.size() < at_ + size + line_end.size()) return Outcome::part;
    if (bytes.substr(at_ + size, line_end.size()) != line_end) return fail("expected the end of a line");
    places_.push_back({at_, size});
    at_ += size + line_end.size();
    word_bytes_ = -1;
    --words_left_;
  }
  is_done_ = true;
  words_.reserve(places_.size());
  for (const auto& place : places_) words_.push_back(bytes.substr(place.begin, place.size));
  return Outcome::whole;
}

RequestReader::Outcome RequestReader::read_inline(std::string_view bytes, const RequestLimits& limits) {
  const auto end = bytes.find('\n');
  if (end == bytes.npos) {
    if (bytes.size() > line_bytes_max) return fail("too big inline request");
    return Outcome::part;
  }
  at_ = end + 1;
  auto line = bytes.substr(0, end);
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (!split(line)) return fail("unbalanced quotes in request");
  if (texts_.size() > limits.words_max) return fail("invalid multibulk length");
  is_done_ = true;
  words_.assign(texts_.begin(), texts_.end());
  return words_.empty() ? Outcome::nothing : Outcome::whole;
}

bool RequestReader::split(std::string_view line) {
  texts_.clear();
  for (std::size_t at = 0; at < line.size();) {
    if (is_space(line[at])) {
      ++at;
    } else if (!take_word(line, at, texts_.emplace_back())) {
      return false;
    }
  }
  return true;
}

}  // namespace fenceguard::resp
