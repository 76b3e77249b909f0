#pragma once

// ConsolePage: the page of /ui, one document with its style and script in it. Its policy lets it load nothing
// and call nothing but this guard, and run no other script and no other style.
//
// Pure; safe to use from any thread.

#include <string>
#include <string_view>

namespace fenceguard {

struct ConsolePage {
  std::string html;
  std::string html_with_tokens;  // where callers need one
  std::string policy;            // what Content-Security-Policy says
};
[[nodiscard]] const ConsolePage& console_page();

// The same page as a file of its own, which shows what was recorded and calls nothing at all. recording:
// JSON, as the demonstrations make it.
[[nodiscard]] std::string recorded_page(std::string_view recording);

}  // namespace fenceguard
