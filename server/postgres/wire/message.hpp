#pragma once

// Messages of PostgreSQL's protocol 3 (PostgreSQL documentation, chapter 55): what is read of them, and those
// that are made here. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fenceguard::pgwire {

constexpr std::size_t header_bytes = 5;  // a type and a length, which counts itself

[[nodiscard]] std::uint32_t read_number(std::string_view bytes) noexcept;
void add_number(std::string& out, std::uint32_t number);
void add_text(std::string& out, std::string_view text);  // with its NUL
void add_message(std::string& out, char type, std::string_view body);

// Takes a text and its NUL off the front; nothing where there is no NUL.
[[nodiscard]] std::optional<std::string_view> take_text(std::string_view& body) noexcept;

// What is said of an error or a notice; empty: not said.
struct Report {
  std::string_view severity;
  std::string_view state;  // SQLSTATE
  std::string_view message;
  std::string_view detail{};
  std::string_view hint{};
};
void add_error(std::string& out, const Report& report);
// With which a session ends.
[[nodiscard]] std::string fatal_error(std::string_view state, std::string_view message,
                                      std::string_view hint = {});
// A field of an error or a notice; nothing where it has none.
[[nodiscard]] std::optional<std::string_view> field_of(std::string_view body, char code) noexcept;
// Characters of ours in a text of the client's, and how many of its own are in front of them.
struct Shift {
  std::size_t characters = 0, after = 0;
};
// The same error with its position counted without those; a position within them is left out.
[[nodiscard]] std::string without_shift(std::string_view body, Shift shift);
// With this hint, where it has none.
[[nodiscard]] std::string with_hint(std::string_view body, std::string_view hint);

// What the extended protocol sends for a statement without parameters.
void add_parse(std::string& out, std::string_view name, std::string_view text);
void add_bind(std::string& out, std::string_view name);
void add_execute(std::string& out);
void add_close(std::string& out, char what, std::string_view name);

}  // namespace fenceguard::pgwire
