#pragma once

// RequestReader: one request of a Redis client, RESP2 or inline, read from bytes that come in pieces. What it
// refuses it refuses in Redis's words, after which the connection is to be closed. It is as strict as the
// protocol's text, where Redis takes any two bytes for the end of a line: a request that was read may be sent
// on as it came.
//
// Source: 'Redis serialization protocol specification'; networking.c of Redis 7.
//
// Not thread-safe.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fenceguard::resp {

struct RequestLimits {
  std::size_t bytes_max = 64 * 1024 * 1024;  // of one request
  std::size_t words_max = 1024 * 1024;
  const char* which = "invalid";  // what is said of a length beyond them
};

class RequestReader {
 public:
  // part: more bytes are needed. nothing: some that ask for nothing were read (an empty line).
  enum class Outcome { whole, nothing, part, malformed };

  // bytes: from the beginning of the request on, and each time all of them, until it is not 'part'. limits:
  // the same for one request.
  [[nodiscard]] Outcome read(std::string_view bytes, const RequestLimits& limits);

  // Of a request that is whole, or nothing: its bytes.
  [[nodiscard]] std::size_t size() const noexcept { return at_; }
  // Its words, which point into the bytes, or into this reader until the next request. At least one.
  [[nodiscard]] const std::vector<std::string_view>& words() const noexcept { return words_; }
  // It came as an inline command: its bytes are no RESP.
  [[nodiscard]] bool is_inline() const noexcept { return is_inline_; }
  // Of a malformed one: 'Protocol error: ...'.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }

 private:
  struct Place {
    std::size_t begin, size;
  };

  Outcome read_inline(std::string_view bytes, const RequestLimits& limits);
  [[nodiscard]] bool split(std::string_view line);
  // Goes past one line 'KIND number'. part: it is not there yet.
  Outcome read_number(std::string_view bytes, std::string_view what_is_big, long long& number);
  Outcome read_words(std::string_view bytes, const RequestLimits& limits);
  Outcome fail(std::string_view what);
  void begin();

  std::size_t at_ = 0;  // read so far
  long long words_left_ = -1;
  long long word_bytes_ = -1;
  bool is_done_ = true;
  bool is_inline_ = false;
  std::vector<Place> places_;
  std::vector<std::string_view> words_;
  std::vector<std::string> texts_;  // of an inline command
  std::string error_;
};

}  // namespace fenceguard::resp
