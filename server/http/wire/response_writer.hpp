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
