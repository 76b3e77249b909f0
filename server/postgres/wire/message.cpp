#include "server/postgres/wire/message.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace fenceguard::pgwire {
namespace {

constexpr char position_code = 'P', hint_code = 'H';

void add_field(std::string& out, char code, std::string_view value) {
  if (value.empty()) return;
  out.push_back(code);
  add_text(out, value);
}

}  // namespace

std::uint32_t read_number(std::string_view bytes) noexcept {
  std::uint32_t number = 0;
  for (const char byte : bytes.substr(0, 4)) number = (number << 8) | static_cast<unsigned char>(byte);
  return number;
}

void add_number(std::string& out, std::uint32_t number) {
  for (const int shift : {24, 16, 8, 0}) out.push_back(static_cast<char>(number >> shift));
}

void add_text(std::string& out, std::string_view text) {
  out.append(text);
  out.push_back('\0');
}

void add_message(std::string& out, char type, std::string_view body) {
  out.push_back(type);
  add_number(out, static_cast<std::uint32_t>(body.size() + 4));
  out.append(body);
}

std::optional<std::string_view> take_text(std::string_view& body) noexcept {
  const auto end = body.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  const auto text = body.substr(0, end);
  body.remove_prefix(end + 1);
  return text;
}

void add_error(std::string& out, const Report& report) {
  std::string body;
  add_field(body, 'S', report.severity);
  add_field(body, 'V', report.severity);
  add_field(body, 'C', report.state);
  add_field(body, 'M', report.message);
  add_field(body, 'D', report.detail);
  add_field(body, hint_code, report.hint);
  body.push_back('\0');
  add_message(out, 'E', body);
}

std::string fatal_error(std::string_view state, std::string_view message, std::string_view hint) {
  std::string out;
  add_error(out, {.severity = "FATAL", .state = state, .message = message, .hint = hint});
  return out;
}

std::optional<std::string_view> field_of(std::string_view body, char code) noexcept {
  while (!body.empty() && body.front() != '\0') {
    const char found = body.front();
    body.remove_prefix(1);
    const auto value = take_text(body);
    if (!value) return std::nullopt;
    if (found == code) return value;
  }
  return std::nullopt;
}

std::string without_shift(std::string_view body, Shift shift) {
  const auto text = field_of(body, position_code);
  std::string changed{body};
  if (!text) return changed;
  std::size_t position = 0;
  std::from_chars(text->data(), text->data() + text->size(), position);
  const auto at = static_cast<std::size_t>(text->data() - body.data());
  if (position <= shift.after) return changed;
  if (position > shift.after + shift.characters) {
    changed.replace(at, text->size(), std::to_string(position - shift.characters));
  } else {
    changed.erase(at - 1, text->size() + 2);
  }
  return changed;
}

std::string with_hint(std::string_view body, std::string_view hint) {
  std::string changed{body};
  if (field_of(body, hint_code) || changed.empty()) return changed;
  changed.pop_back();
  add_field(changed, hint_code, hint);
  changed.push_back('\0');
  return changed;
}

void add_parse(std::string& out, std::string_view name, std::string_view text) {
  std::string body;
  add_text(body, name);
  add_text(body, text);
  body.append(2, '\0');
  add_message(out, 'P', body);
}

void add_bind(std::string& out, std::string_view name) {
  std::string body;
  add_text(body, {});
  add_text(body, name);
  body.append(6, '\0');
  add_message(out, 'B', body);
}

void add_execute(std::string& out) {
  add_message(out, 'E', std::string_view{"\0\0\0\0\0", 5});
}

void add_close(std::string& out, char what, std::string_view name) {
  std::string body{what};
  add_text(body, name);
  add_message(out, 'C', body);
}

}  // namespace fenceguard::pgwire
