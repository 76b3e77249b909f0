#pragma once

// Script: a Lua script that the server runs as one atomic step. It is called by its hash; a server that does
// not have it (restarted, SCRIPT FLUSH) is sent the text, which it keeps.
//
// Values made once, at the start; safe to use from any thread.

#include <initializer_list>
#include <string>
#include <string_view>

namespace fenceguard::redis {

// Begins the text of a script that runs while the server is out of memory (maxmemory). What such a script
// writes is a fence, a lock or a counter, and small: a full server must not keep a holder from being cut off.
constexpr std::string_view with_full_memory = "#!lua flags=allow-oom\n";

class Script {
 public:
  // The parts, one after another: what several scripts share comes first.
  Script(std::initializer_list<std::string_view> parts);

  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  // SHA-1 of the text, 40 hexadecimal digits, as EVALSHA wants it.
  [[nodiscard]] const std::string& hash() const noexcept { return hash_; }

 private:
  std::string text_;
  std::string hash_;
};

}  // namespace fenceguard::redis
