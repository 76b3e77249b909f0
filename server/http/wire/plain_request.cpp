#include "server/http/wire/plain_request.hpp"

#include <cstdint>

#include "guard/support/text.hpp"

namespace fenceguard::http {
namespace {

// Where a character may stand.
enum Place : std::uint8_t {
  in_method = 1,  // capital letters
  in_name = 2,    // letters, digits, hyphens
  in_path = 4,    // unreserved characters and slashes
  in_query = 8,
  in_value = 16,
  in_host = 32,
};

constexpr std::array<std::uint8_t, 256> make_places() {
  std::array<std::uint8_t, 256> places{};
  const auto allow = [&](std::string_view characters, unsigned where) {
    for (const char c : characters) {
      auto& place = places[static_cast<unsigned char>(c)];
      place = static_cast<std::uint8_t>(place | where);
    }
  };
  for (unsigned c = ' '; c <= '~'; ++c) places[c] = in_value;
  allow("ABCDEFGHIJKLMNOPQRSTUVWXYZ", in_method);
  allow("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-",
        in_name | in_path | in_query | in_host);
  allow("._~/", in_path | in_query);
  allow(".", in_host);
  allow("?=&%:@,;+!*", in_query);
  return places;
}
constexpr auto places = make_places();

// Takes the characters that may stand there off rest.
std::string_view take(std::string_view& rest, Place where) noexcept {
  std::size_t end = 0;
  while (end < rest.size() && (places[static_cast<unsigned char>(rest[end])] & where) != 0) ++end;
  const auto taken = rest.substr(0, end);
  rest.remove_prefix(end);
  return taken;
}

bool take_text(std::string_view& rest, std::string_view text) noexcept {
  if (!rest.starts_with(text)) return false;
  rest.remove_prefix(text.size());
  return true;
}

constexpr bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

// A name or number, and perhaps a port.
bool is_plain_host(std::string_view value) noexcept {
  if (take(value, in_host).empty()) return false;
  if (value.empty()) return true;
  if (!take_text(value, ":") || value.empty()) return false;
  for (const char c : value) {
    if (!is_digit(c)) return false;
  }
  return true;
}

}  // namespace

bool PlainRequest::read(std::string_view data, std::size_t header_bytes_max) {
  auto rest = data;
  if (!read_request_line(rest)) return false;
  while (!take_text(rest, "\r\n")) {
    if (!read_field(rest)) return false;
  }
  const std::size_t head_bytes = data.size() - rest.size();
  if (host.empty() || head_bytes > header_bytes_max || rest.size() < body_bytes_) return false;
  body = rest.substr(0, body_bytes_);
  bytes = head_bytes + body_bytes_;
  return true;
}

bool PlainRequest::read_request_line(std::string_view& rest) {
  method = take(rest, in_method);
  if (method.empty() || !take_text(rest, " ")) return false;
  path = take(rest, in_path);
  if (!path.starts_with('/')) return false;
  if (rest.starts_with('?')) query = take(rest, in_query);
  return take_text(rest, " HTTP/1.1\r\n");
}

bool PlainRequest::read_field(std::string_view& rest) {
  FieldView field{take(rest, in_name), {}};
  if (field.name.empty() || field_count_ == fields_max || !take_text(rest, ": ")) return false;
  field.value = take(rest, in_value);
  const bool is_trimmed = !field.value.empty() && field.value.front() != ' ' && field.value.back() != ' ';
  if (!is_trimmed || !take_text(rest, "\r\n")) return false;
  fields_[field_count_++] = field;
  return take_field(field);
}

// What tells where a request ends, what becomes of its connection, and whose it is.
bool PlainRequest::take_field(const FieldView& field) {
  const auto is = [&](std::string_view name) { return equals_ignoring_case(field.name, name); };
  switch (field.name.front() | 0x20) {
    case 'h':
      if (!is("Host")) return true;
      if (!host.empty() || !is_plain_host(field.value)) return false;
      host = field.value;
      return true;
    case 'c':
      if (is("Content-Length")) return take_length(field.value);
      return !is("Connection") || equals_ignoring_case(field.value, "keep-alive");
    case 'e':
      return !is("Expect");
    case 'p':
      return !is("Proxy-Connection");
    case 't':
      return !is("Transfer-Encoding");
    case 'u':
      return !is("Upgrade");
    default:
      return true;
  }
}

bool PlainRequest::take_length(std::string_view value) {
  constexpr std::size_t digits_max = 9;
  const bool has_leading_zero = value.size() > 1 && value.front() == '0';
  if (has_length_ || value.size() > digits_max || has_leading_zero) return false;
  has_length_ = true;
  for (const char c : value) {
    if (!is_digit(c)) return false;
    body_bytes_ = body_bytes_ * 10 + static_cast<std::size_t>(c - '0');
  }
  return true;
}

}  // namespace fenceguard::http
