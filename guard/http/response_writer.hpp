#pragma once

// How a Response becomes bytes. Pure.

#include <ctime>
#include <string>
#include <string_view>

#include "guard/http/message.hpp"

namespace fenceguard::http {

// What the connection adds to an answer.
struct Framing {
  bool is_head = false;      // answers HEAD: no body follows
  bool close = false;        // 'Connection: close'
  bool is_http_1_0 = false;  // must be told that the connection stays, if it does
  std::string_view date;     // the value of Date
};

// Appends status line and header block of response to out.
void write_head(std::string& out, const Response& response, const Framing& framing);

// Whether the bytes of response.body follow its header block.
[[nodiscard]] bool sends_body(const Response& response, const Framing& framing) noexcept;

// An HTTP date: 'Sun, 06 Nov 1994 08:49:37 GMT'.
[[nodiscard]] std::string http_date(std::time_t seconds);

}  // namespace fenceguard::http
