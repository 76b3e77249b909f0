#pragma once

// How a Response becomes bytes. Pure.

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/wire/message.hpp"

namespace fenceguard::http {

// What the connection adds to an answer.
struct Framing {
  bool is_head = false;      // answers HEAD: no body follows
  bool close = false;        // 'Connection: close'
  bool is_http_1_0 = false;  // must be told that the connection stays, if it does
  std::string_view date;     // the value of Date
  // The body is not response.body but follows in pieces: as many bytes, or in chunks, or neither.
  bool is_streamed = false;
  std::optional<std::uint64_t> length{};
  bool is_chunked = false;
};

// The parts of a head, for an answer that is no Response: the status line with Date, a field, the end with
// the body's framing. body_bytes: of its own body, which is not streamed.
void begin_head(std::string& out, unsigned status, std::string_view date);
void append_field(std::string& out, std::string_view name, std::string_view value);
void end_head(std::string& out, unsigned status, std::size_t body_bytes, const Framing& framing);

// Appends status line and header block of response to out.
void write_head(std::string& out, const Response& response, const Framing& framing);

// Whether an answer with this status has a body, other than to HEAD.
[[nodiscard]] bool may_have_body(unsigned status) noexcept;

// Whether the bytes of response.body follow its header block.
[[nodiscard]] bool sends_body(const Response& response, const Framing& framing) noexcept;

// An HTTP date: 'Sun, 06 Nov 1994 08:49:37 GMT'.
[[nodiscard]] std::string http_date(std::time_t seconds);
// Of now: the value of Date. Valid on this thread until its next call.
[[nodiscard]] std::string_view http_date_now();

}  // namespace fenceguard::http
