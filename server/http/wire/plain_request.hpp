#pragma once

// PlainRequest: a whole request that no two readers understand differently, found in one pass over the bytes
// and without a copy. What is plain here RequestReader reads just so; everything else is left to it: this one
// refuses nothing.
//
// Pure: bytes in, views of them out.

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace fenceguard::http {

// A field of a message that was received; both lie in what was received.
struct FieldView {
  std::string_view name;
  std::string_view value;
};

struct PlainRequest {
  static constexpr std::size_t fields_max = 32;

  std::string_view method;
  std::string_view path;   // begins with a slash; unreserved characters and slashes only
  std::string_view query;  // with its question mark; empty if there is none
  std::string_view host;   // the value of Host
  std::string_view body;
  std::size_t bytes = 0;  // of it all

  [[nodiscard]] std::span<const FieldView> fields() const noexcept { return {fields_.data(), field_count_}; }
  [[nodiscard]] bool has_body() const noexcept { return !body.empty(); }

  // What data begins with. False: it is not plain, or not whole yet. Plain is HTTP/1.1 whose connection
  // stays, with one Host that is a name or an IPv4 number; fields whose names are letters, digits and hyphens
  // and whose values are visible ASCII and single blanks; a body of a known length or none. header_bytes_max:
  // of all but the body.
  [[nodiscard]] bool read(std::string_view data, std::size_t header_bytes_max);

 private:
  [[nodiscard]] bool read_request_line(std::string_view& rest);
  [[nodiscard]] bool read_field(std::string_view& rest);
  [[nodiscard]] bool take_field(const FieldView& field);
  [[nodiscard]] bool take_length(std::string_view value);

  std::array<FieldView, fields_max> fields_;
  std::size_t field_count_ = 0;
  std::size_t body_bytes_ = 0;
  bool has_length_ = false;
};

}  // namespace fenceguard::http
