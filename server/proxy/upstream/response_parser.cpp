#include "server/proxy/upstream/response_parser.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "server/proxy/request/field_names.hpp"

namespace fenceguard::proxy {
namespace {

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

bool is_token_character(char c) noexcept {
  constexpr std::string_view others = "!#$%&'*+-.^_`|~";
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         others.find(c) != std::string_view::npos;
}

bool is_value_character(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  return byte == '\t' || (byte >= 0x20 && byte != 0x7F);
}

std::optional<std::uint64_t> parse_number(std::string_view text) noexcept {
  std::uint64_t number = 0;
  if (text.empty() || !is_digit(text.front())) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string_view trimmed(std::string_view text) noexcept {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// The next line, without its end, taken off block. REQUIRES: there is one.
std::string_view take_line(std::string_view& block) noexcept {
  const auto line = block.substr(0, block.find('\r'));
  block.remove_prefix(line.size() + 2);
  return line;
}

bool read_status_line(std::string_view line, ResponseHead& head) {
  const bool is_version_known = line.substr(0, 9) == "HTTP/1.1 " || line.substr(0, 9) == "HTTP/1.0 ";
  if (!is_version_known || line.size() < 12) return false;
  head.is_http_1_0 = line[7] == '0';
  const auto status = parse_number(line.substr(9, 3));
  if (!status || *status < 100 || *status > 599) return false;
  head.status = static_cast<unsigned>(*status);
  const auto rest = line.substr(12);
  return rest.empty() || (rest.front() == ' ' && std::all_of(rest.begin(), rest.end(), is_value_character));
}

void read_keep_alive(std::string_view value, ResponseHead& head) {
  constexpr std::string_view name = "timeout=";
  for_each_element(value, [&](std::string_view element) {
    if (!equals_ignoring_case(element.substr(0, name.size()), name)) return;
    const auto seconds = parse_number(element.substr(name.size()));
    if (seconds && *seconds < 1'000'000) head.idle_max = std::chrono::seconds{*seconds};
  });
}

// False: odd.
bool read_special_field(const FieldView& field, ResponseHead& head) {
  if (equals_ignoring_case(field.name, "Content-Length")) {
    const bool is_repeated = head.body_bytes.has_value();
    head.body_bytes = parse_number(field.value);
    return head.body_bytes && !is_repeated;
  }
  if (equals_ignoring_case(field.name, "Transfer-Encoding")) {
    const bool is_repeated = std::exchange(head.is_chunked, true);
    return !is_repeated && equals_ignoring_case(field.value, "chunked");
  }
  if (equals_ignoring_case(field.name, "Connection")) return head.connection.add(field.value);
  if (equals_ignoring_case(field.name, "Keep-Alive")) read_keep_alive(field.value, head);
  return true;
}

bool read_field(std::string_view line, ResponseHead& head) {
  const auto colon = line.find(':');
  if (colon == 0 || colon == std::string_view::npos) return false;
  const FieldView field{line.substr(0, colon), trimmed(line.substr(colon + 1))};
  if (!std::all_of(field.name.begin(), field.name.end(), is_token_character)) return false;
  if (!std::all_of(field.value.begin(), field.value.end(), is_value_character)) return false;
  head.fields.push_back(field);
  return read_special_field(field, head);
}

bool has_odd_framing(const ResponseHead& head) noexcept {
  if (head.is_chunked && (head.body_bytes || head.is_http_1_0)) return true;
  const bool has_no_body = head.is_interim() || head.status == 204;
  return has_no_body && (head.is_chunked || head.body_bytes.value_or(0) > 0);
}

}  // namespace

std::optional<ResponseHead> read_answer_head(std::string_view block) {
  std::optional<ResponseHead> head{std::in_place};
  if (!read_answer_head(block, *head)) head.reset();
  return head;
}

bool read_answer_head(std::string_view block, ResponseHead& head) {
  head.fields.clear();
  head.fields.reserve(16);
  head.connection = {};
  head.body_bytes.reset();
  head.is_chunked = false;
  head.idle_max.reset();
  if (!read_status_line(take_line(block), head)) return false;
  for (auto line = take_line(block); !line.empty(); line = take_line(block)) {
    if (!read_field(line, head)) return false;
  }
  // The request asked for no other protocol.
  return head.status != 101 && !has_odd_framing(head);
}

ResponseBody::ResponseBody(const ResponseHead& head, bool answers_head) : framing_{Framing::none} {
  const bool has_none = answers_head || head.is_interim() || head.status == 204 || head.status == 304;
  if (has_none) {
    state_ = State::complete;
  } else if (head.is_chunked) {
    framing_ = Framing::chunked;
    chunks_.emplace(std::numeric_limits<std::size_t>::max());
  } else if (head.body_bytes) {
    framing_ = Framing::sized;
    bytes_left_ = *head.body_bytes;
    if (bytes_left_ == 0) state_ = State::complete;
  } else {
    framing_ = Framing::to_end;
  }
}

std::size_t ResponseBody::read(std::string_view data, std::string& out) {
  if (state_ != State::open) return 0;
  if (framing_ == Framing::chunked) return read_chunks(data, out);
  auto taken = data.size();
  if (framing_ == Framing::sized) {
    taken = static_cast<std::size_t>(std::min<std::uint64_t>(bytes_left_, taken));
    bytes_left_ -= taken;
    if (bytes_left_ == 0) state_ = State::complete;
  }
  out.append(data.substr(0, taken));
  return taken;
}

std::size_t ResponseBody::read_chunks(std::string_view data, std::string& out) {
  const auto used = chunks_->read(data, out);
  if (chunks_->refusal()) state_ = State::odd;
  if (chunks_->is_complete()) state_ = State::complete;
  return used;
}

void ResponseBody::end() {
  if (state_ == State::open) state_ = framing_ == Framing::to_end ? State::complete : State::odd;
}

std::optional<std::uint64_t> ResponseBody::bytes_left() const noexcept {
  if (state_ == State::complete) return 0;
  if (framing_ == Framing::sized) return bytes_left_;
  return std::nullopt;
}

}  // namespace fenceguard::proxy
