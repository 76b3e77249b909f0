#pragma once

// ChunkReader: undoes the chunked transfer coding (RFC 9112, section 7.1) of a request's body. Pure. Beast
// has one too, but it asserts on a last chunk that arrives in pieces, and merges trailers into the header
// fields.
//
// Not thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/wire/rejection.hpp"

namespace fenceguard::http {

class ChunkReader {
 public:
  // A line longer than this, and trailers of more than this in all, are refused. A caller's buffer must hold
  // it.
  static constexpr std::size_t line_bytes_max = 4096;

  // Appends to body what data holds of it, up to bytes_max, and says how many bytes of data were used; what
  // was not used must be given again, with more behind it. Extensions and trailers are read over.
  [[nodiscard]] std::size_t read(std::string_view data, std::string& body,
                                 std::size_t bytes_max = std::string::npos);

  [[nodiscard]] bool is_complete() const noexcept { return state_ == State::complete; }
  [[nodiscard]] const std::optional<Rejection>& refusal() const noexcept { return refusal_; }

  explicit ChunkReader(std::size_t body_bytes_max) : body_bytes_left_{body_bytes_max} {}

 private:
  enum class State { size, content, content_end, trailers, complete };

  [[nodiscard]] std::size_t step(std::string_view data, std::string& body, std::size_t& room);
  [[nodiscard]] std::size_t read_content(std::string_view data, std::string& body, std::size_t& room);
  void take_line(std::string_view line);
  void take_size(std::string_view line);
  void take_trailer(std::string_view line);
  std::size_t refuse(unsigned status, std::string_view why);

  State state_ = State::size;
  std::uint64_t chunk_bytes_left_ = 0;
  std::size_t body_bytes_left_;
  std::size_t trailer_bytes_ = 0;
  std::optional<Rejection> refusal_;
};

}  // namespace fenceguard::http
