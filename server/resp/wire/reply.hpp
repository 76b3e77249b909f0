#pragma once

// Replies of a Redis server as bytes (RESP2): where one ends, what its parts are, and how ours are written.
// They are copied and never rebuilt, so that a client gets what the server said.
//
// Source: 'Redis serialization protocol specification'. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace fenceguard::resp {

// Finds the end of one reply in bytes that come in pieces.
class ReplyReader {
 public:
  enum class Outcome { whole, part, malformed };

  // bytes: from the beginning of the reply on, and each time all of them, until it is whole.
  [[nodiscard]] Outcome read(std::string_view bytes);
  // Of one that is whole.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  std::size_t at_ = 0;
  std::size_t size_ = 0;
  std::uint64_t values_left_ = 1;
};

// A whole reply, or an element of one.
struct ReplyView {
  char kind = 0;              // '+', '-', ':', '$' or '*'
  bool is_nil = false;        // of '$' and '*'
  std::string_view text{};    // what follows the kind in its line; of a bulk its bytes
  std::string_view bytes{};   // all of it
  std::string_view inside{};  // of an array: the bytes of its elements
  std::size_t elements = 0;   // of an array

  [[nodiscard]] bool is_error() const noexcept { return kind == '-'; }
};

// Takes the first value off bytes, which begin with a whole one. Nothing if they do not.
[[nodiscard]] std::optional<ReplyView> take_value(std::string_view& bytes);

// Of a whole reply that is an error: its text.
[[nodiscard]] constexpr std::string_view error_of(std::string_view reply) noexcept {
  return reply.substr(1, reply.size() - 3);
}

// Append one reply, or one line of it.
void add_array(std::string& out, std::size_t elements);
void add_bulk(std::string& out, std::string_view text);
void add_integer(std::string& out, std::string_view digits);
// A request.
void add_command(std::string& out, std::initializer_list<std::string_view> words);
// text may be of a client: the ends of lines in it become spaces.
void add_error(std::string& out, std::string_view text);

// Gives back what a string or a vector has of memory, which an assignment of {} does not.
template <class Container>
void free_memory(Container& container) noexcept {
  Container none;
  std::swap(container, none);
}

inline constexpr std::string_view line_end = "\r\n";
inline constexpr std::string_view ok_reply = "+OK\r\n";
inline constexpr std::string_view nil_array = "*-1\r\n";
inline constexpr std::string_view nil_bulk = "$-1\r\n";

}  // namespace fenceguard::resp
