#include "server/http/wire/request_reader.hpp"

#include <algorithm>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <limits>

#include "guard/support/text.hpp"

namespace fenceguard::http {
namespace {

namespace beast_http = boost::beast::http;

constexpr std::string_view method_characters =
    "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

Rejection refusal_for(const boost::beast::error_code& error) {
  switch (static_cast<beast_http::error>(error.value())) {
    case beast_http::error::body_limit:
      return {413, "the body is larger than this server takes"};
    case beast_http::error::header_limit:
      return {431, "the header block is larger than this server takes"};
    case beast_http::error::bad_method:
      return {400, "the method is malformed"};
    case beast_http::error::bad_target:
      return {400, "the target is malformed"};
    case beast_http::error::bad_version:
      return {400, "only HTTP/1.0 and HTTP/1.1 are spoken here"};
    case beast_http::error::bad_field:
      return {400, "a header field's name is malformed"};
    case beast_http::error::bad_value:
      return {400, "a header field's value is malformed"};
    case beast_http::error::bad_content_length:
      return {400, "Content-Length is malformed"};
    case beast_http::error::multiple_content_length:
      return {400, "Content-Length is repeated"};
    case beast_http::error::bad_transfer_encoding:
      return {400, "Transfer-Encoding is malformed or repeated"};
    default:
      return {400, "the request is malformed"};
  }
}

bool is_digits(boost::beast::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool all_of(std::string_view text, std::string_view characters) {
  return text.find_first_not_of(characters) == std::string_view::npos;
}

// A name or a number, and perhaps a port; and no sign at which two readers might split it differently.
bool is_host(std::string_view value) {
  constexpr std::string_view digits = "0123456789";
  constexpr std::string_view number_characters = "0123456789ABCDEFabcdef:.";
  constexpr std::string_view name_characters =
      "-._~%!$&'()*+;=0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const bool is_number = value.starts_with('[');
  const auto end = value.find(is_number ? ']' : ':');
  if (is_number && end == std::string_view::npos) return false;
  const auto host = is_number ? value.substr(1, end - 1) : value.substr(0, end);
  const auto port = value.substr(std::min(value.size(), is_number ? end + 1 : end));
  return !host.empty() && all_of(host, is_number ? number_characters : name_characters) &&
         (port.empty() || (port.front() == ':' && all_of(port.substr(1), digits)));
}

bool holds(std::string_view text, char c) {
  return text.find(c) != std::string_view::npos;
}

}  // namespace

HeadScanner::State HeadScanner::scan(std::string_view data) {
  if (!started_) {
    if (data.empty()) return State::incomplete;
    if (data[0] == '\r') {
      if (data.size() < 3) return data == "\r" || data == "\r\n" ? State::incomplete : State::malformed;
      if (data[1] != '\n') return State::malformed;
      skip_ = line_ = seen_ = 2;
    }
    if (!holds(method_characters, data[skip_])) return State::malformed;
    started_ = true;
  }
  for (;;) {
    const auto feed = data.find('\n', seen_);
    if (feed == std::string_view::npos) {
      seen_ = data.size();
      return State::incomplete;
    }
    if (feed == line_ || data[feed - 1] != '\r') return State::malformed;
    const auto line = data.substr(line_, feed - 1 - line_);
    if (holds(line, '\r') || holds(line, '\0')) return State::malformed;
    const bool is_folded = !line.empty() && line_ != skip_ && (line[0] == ' ' || line[0] == '\t');
    if (is_folded) return State::malformed;
    line_ = seen_ = feed + 1;
    if (line.empty()) return State::complete;
  }
}

RequestReader::RequestReader(std::size_t body_bytes_max) {
  body_limit(body_bytes_max);
  header_limit(std::numeric_limits<std::uint32_t>::max());  // the scanner's caller has measured the block
  eager(false);
  request_.fields.reserve(8);
}

std::optional<Rejection> RequestReader::read_head(std::string_view block) {
  boost::beast::error_code error;
  const auto used = put(boost::asio::const_buffer{block.data(), block.size()}, error);
  if (refusal_) return refusal_;
  if (error) return refusal_for(error);
  if (used != block.size()) return Rejection{400, "the request is malformed"};
  return check_head();
}

void RequestReader::take_head(const PlainRequest& plain) {
  is_plain_ = true;
  plain_body_bytes_ = plain.body.size();
  request_.method = plain.method;
  request_.target.append(plain.path).append(plain.query);
  for (const auto& [name, value] : plain.fields()) request_.fields.add(std::string{name}, std::string{value});
}

std::optional<Rejection> RequestReader::check_head() const {
  if (hosts_ > 1) return Rejection{400, "Host is repeated"};
  if (hosts_ == 0 && version_ >= 11) return Rejection{400, "Host is missing"};
  if (transfer_encodings_ > 0 && version_ < 11) return Rejection{400, "HTTP/1.0 has no Transfer-Encoding"};
  return std::nullopt;
}

void RequestReader::check_field(beast_http::field id, Text value) {
  switch (id) {
    case beast_http::field::host:
      ++hosts_;
      if (!is_host({value.data(), value.size()})) refusal_ = Rejection{400, "Host is malformed"};
      break;
    case beast_http::field::content_length:
      if (++content_lengths_ > 1) refusal_ = Rejection{400, "Content-Length is repeated"};
      if (!is_digits(value)) refusal_ = Rejection{400, "Content-Length is malformed"};
      break;
    case beast_http::field::transfer_encoding:
      if (++transfer_encodings_ > 1) refusal_ = Rejection{400, "Transfer-Encoding is repeated"};
      if (!equals_ignoring_case(value, "chunked")) {
        refusal_ = Rejection{400, "chunked is the only transfer coding that is known here"};
      }
      break;
    case beast_http::field::expect:
      if (version_ < 11) break;
      if (expects_continue_ || !equals_ignoring_case(value, "100-continue"))
        refusal_ = Rejection{417, "100-continue is all that is met"};
      expects_continue_ = true;
      break;
    default:
      break;
  }
  if (content_lengths_ > 0 && transfer_encodings_ > 0) {
    refusal_ = Rejection{400, "Content-Length and Transfer-Encoding exclude each other"};
  }
}

void RequestReader::on_request_impl(beast_http::verb, Text method, Text target, int version, ErrorCode&) {
  request_.method.assign(method.data(), method.size());
  request_.target.assign(target.data(), target.size());
  version_ = version;
  if (request_.target.empty() || request_.target.front() != '/')
    refusal_ = Rejection{400, "the target must begin with a slash"};
}

void RequestReader::on_response_impl(int, Text, int, ErrorCode&) {}

void RequestReader::on_field_impl(beast_http::field id, Text name, Text value, ErrorCode&) {
  if (!refusal_) check_field(id, value);
  request_.fields.add(std::string{name.data(), name.size()}, std::string{value.data(), value.size()});
}

void RequestReader::on_header_impl(ErrorCode&) {}

void RequestReader::on_body_init_impl(const boost::optional<std::uint64_t>&, ErrorCode&) {}

std::size_t RequestReader::on_body_impl(Text body, ErrorCode&) {
  return body.size();
}

void RequestReader::on_chunk_header_impl(std::uint64_t, Text, ErrorCode&) {}

std::size_t RequestReader::on_chunk_body_impl(std::uint64_t, Text body, ErrorCode&) {
  return body.size();
}

void RequestReader::on_finish_impl(ErrorCode&) {}

}  // namespace fenceguard::http
