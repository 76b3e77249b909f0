#include "server/http/wire/response_writer.hpp"

#include <fmt/format.h>

#include <array>
#include <boost/beast/http/status.hpp>
#include <charconv>
#include <ctime>

namespace fenceguard::http {
namespace {

void append_number(std::string& out, std::uint64_t number) {
  std::array<char, 20> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out.append(digits.data(), end);
}

// A value never ends its line early, whatever it was made from.
void append_value(std::string& out, std::string_view value) {
  const auto begin = out.size();
  out.append(value);
  for (auto at = begin; at < out.size(); ++at) {
    if (out[at] == '\r' || out[at] == '\n' || out[at] == '\0') out[at] = ' ';
  }
}

// How the body is framed. body_bytes: of a body that is not streamed.
void append_framing(std::string& out, std::size_t body_bytes, const Framing& framing) {
  if (framing.is_chunked) {
    out.append("Transfer-Encoding: chunked\r\n");
    return;
  }
  const std::optional<std::uint64_t> length =
      framing.is_streamed ? framing.length : std::optional<std::uint64_t>{body_bytes};
  if (!length) return;
  out.append("Content-Length: ");
  append_number(out, *length);
  out.append("\r\n");
}

}  // namespace

bool may_have_body(unsigned status) noexcept {
  return status >= 200 && status != 204 && status != 304;
}

bool sends_body(const Response& response, const Framing& framing) noexcept {
  return !framing.is_head && may_have_body(response.status);
}

void begin_head(std::string& out, unsigned status, std::string_view date) {
  out.append("HTTP/1.1 ");
  append_number(out, status);
  out.push_back(' ');
  const auto reason = boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(status));
  out.append(reason.data(), reason.size());
  out.append("\r\nDate: ").append(date).append("\r\n");
}

void append_field(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  append_value(out, value);
  out.append("\r\n");
}

void end_head(std::string& out, unsigned status, std::size_t body_bytes, const Framing& framing) {
  if (may_have_body(status)) append_framing(out, body_bytes, framing);
  if (framing.close) {
    out.append("Connection: close\r\n");
  } else if (framing.is_http_1_0) {
    out.append("Connection: keep-alive\r\n");
  }
  out.append("\r\n");
}

void write_head(std::string& out, const Response& response, const Framing& framing) {
  begin_head(out, response.status, framing.date);
  for (const auto& [name, value] : response.fields) append_field(out, name, value);
  const bool is_other_length = framing.is_head && response.head_length;
  end_head(out, response.status, is_other_length ? *response.head_length : response.body.size(), framing);
}

std::string http_date(std::time_t seconds) {
  static constexpr std::array days{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array months{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT", days[static_cast<std::size_t>(utc.tm_wday)],
                     utc.tm_mday, months[static_cast<std::size_t>(utc.tm_mon)], utc.tm_year + 1900,
                     utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string_view http_date_now() {
  thread_local std::time_t made_at = -1;
  thread_local std::string date;
  if (const auto now = std::time(nullptr); now != made_at) {
    date = http_date(now);
    made_at = now;
  }
  return date;
}

}  // namespace fenceguard::http
