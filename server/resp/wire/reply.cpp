#include "server/resp/wire/reply.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace fenceguard::resp {
namespace {

// What no server sends: one that does is none.
constexpr long long length_max = 1LL << 40;

std::optional<long long> length_of(std::string_view digits) {
  long long value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  if (value < -1 || value > length_max) return std::nullopt;
  return value;
}

void add_header(std::string& out, char kind, std::size_t number) {
  char text[24]{kind};
  auto* end = std::to_chars(text + 1, text + 22, number).ptr;
  *end++ = '\r';
  *end++ = '\n';
  out.append(text, end);
}

}  // namespace

ReplyReader::Outcome ReplyReader::read(std::string_view bytes) {
  while (values_left_ > 0) {
    const auto end = bytes.find(line_end, at_);
    if (end == bytes.npos) return Outcome::part;
    const char kind = end == at_ ? '\0' : bytes[at_];
    auto next = end + line_end.size();
    if (kind == '$' || kind == '*') {
      const auto length = length_of(bytes.substr(at_ + 1, end - at_ - 1));
      if (!length) return Outcome::malformed;
      if (kind == '*' && *length > 0) values_left_ += static_cast<std::uint64_t>(*length);
      if (kind == '$' && *length >= 0) next += static_cast<std::size_t>(*length) + line_end.size();
    } else if (kind != '+' && kind != '-' && kind != ':') {
      return Outcome::malformed;
    }
    if (next > bytes.size()) return Outcome::part;
    at_ = next;
    --values_left_;
  }
  size_ = std::exchange(at_, 0);
  values_left_ = 1;
  return Outcome::whole;
}

std::optional<ReplyView> take_value(std::string_view& bytes) {
  ReplyReader reader;
  if (reader.read(bytes) != ReplyReader::Outcome::whole) return std::nullopt;
  ReplyView view;
  view.bytes = bytes.substr(0, reader.size());
  bytes.remove_prefix(reader.size());
  view.kind = view.bytes.front();
  const auto end = view.bytes.find(line_end);
  view.text = view.bytes.substr(1, end - 1);
  if (view.kind != '$' && view.kind != '*') return view;
  const auto length = *length_of(view.text);
  view.is_nil = length < 0;
  const auto rest = view.bytes.substr(end + line_end.size());
  if (view.kind == '*') {
    view.elements = static_cast<std::size_t>(std::max(0LL, length));
    view.inside = rest;
  } else {
    view.text = rest.substr(0, static_cast<std::size_t>(std::max(0LL, length)));
  }
  return view;
}

void add_array(std::string& out, std::size_t elements) {
  add_header(out, '*', elements);
}

void add_command(std::string& out, std::initializer_list<std::string_view> words) {
  add_array(out, words.size());
  for (const auto word : words) add_bulk(out, word);
}

void add_bulk(std::string& out, std::string_view text) {
  add_header(out, '$', text.size());
  out.append(text).append(line_end);
}

void add_integer(std::string& out, std::string_view digits) {
  out.append(":").append(digits).append(line_end);
}

void add_error(std::string& out, std::string_view text) {
  const auto begin = out.size();
  out.append("-").append(text);
  std::replace_if(
      out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(),
      [](char c) { return c == '\r' || c == '\n'; }, ' ');
  out.append(line_end);
}

}  // namespace fenceguard::resp
