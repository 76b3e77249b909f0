#pragma once

// What bytes make a request: HeadScanner finds the end of a header block as it arrives, RequestReader turns
// the block into a Request. Both are pure: bytes in, values out, no socket and no clock. Beast's parser reads
// the syntax; what it lets through and two readers could understand differently is refused here. For bodies
// in chunks see ChunkReader.
//
// Not thread-safe.

#include <boost/beast/http/basic_parser.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/wire/message.hpp"
#include "server/http/wire/plain_request.hpp"
#include "server/http/wire/rejection.hpp"

namespace fenceguard::http {

// Finds the end of a header block. Beast could parse while it arrives, but would count only the present line
// against its limit.
class HeadScanner {
 public:
  enum class State { incomplete, complete, malformed };

  // Looks at data, which holds everything received since the last request; each call sees what the one before
  // saw, and more. malformed: a bare CR or LF, a NUL, a folded line, or bytes with which no request begins.
  [[nodiscard]] State scan(std::string_view data);

  // The header block is data[skip(), end()). REQUIRES: complete.
  [[nodiscard]] std::size_t skip() const noexcept { return skip_; }
  [[nodiscard]] std::size_t end() const noexcept { return line_; }

 private:
  bool started_ = false;
  std::size_t skip_ = 0;  // one empty line before a request is forgiven
  std::size_t line_ = 0;  // where the present line begins
  std::size_t seen_ = 0;
};

class RequestReader final : private boost::beast::http::basic_parser<true> {
 public:
  explicit RequestReader(std::size_t body_bytes_max);

  // Reads a whole header block, its empty line included. A refusal: it is not a request that may be answered.
  [[nodiscard]] std::optional<Rejection> read_head(std::string_view block);
  // Takes over a head that was read as a plain one, in place of read_head(). REQUIRES: plain has been read.
  void take_head(const PlainRequest& plain);

  // After read_head() without a refusal, or take_head().
  [[nodiscard]] Request& request() noexcept { return request_; }
  [[nodiscard]] bool wants_keep_alive() const { return is_plain_ || keep_alive(); }
  [[nodiscard]] bool is_http_1_0() const noexcept { return version_ == 10; }
  [[nodiscard]] bool is_chunked() const noexcept { return transfer_encodings_ > 0; }
  [[nodiscard]] std::uint64_t body_bytes() const {
    return is_plain_ ? plain_body_bytes_ : content_length().value_or(0);
  }
  [[nodiscard]] bool has_body() const { return is_chunked() || body_bytes() > 0; }
  [[nodiscard]] bool expects_continue() const noexcept { return expects_continue_; }

 private:
  using Text = boost::beast::string_view;
  using ErrorCode = boost::beast::error_code;

  void on_request_impl(boost::beast::http::verb verb, Text method, Text target, int version,
                       ErrorCode& error) override;
  void on_response_impl(int code, Text reason, int version, ErrorCode& error) override;
  void on_field_impl(boost::beast::http::field id, Text name, Text value, ErrorCode& error) override;
  void on_header_impl(ErrorCode& error) override;
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, ErrorCode& error) override;
  std::size_t on_body_impl(Text body, ErrorCode& error) override;
  void on_chunk_header_impl(std::uint64_t size, Text extension, ErrorCode& error) override;
  std::size_t on_chunk_body_impl(std::uint64_t remain, Text body, ErrorCode& error) override;
  void on_finish_impl(ErrorCode& error) override;

  void check_field(boost::beast::http::field id, Text value);
  [[nodiscard]] std::optional<Rejection> check_head() const;

  Request request_;
  std::optional<Rejection> refusal_;  // the first thing that was wrong and that Beast lets through
  int version_ = 11;
  unsigned hosts_ = 0;
  unsigned content_lengths_ = 0;
  unsigned transfer_encodings_ = 0;
  bool expects_continue_ = false;
  bool is_plain_ = false;
  std::uint64_t plain_body_bytes_ = 0;
};

}  // namespace fenceguard::http
