#include "server/data/trace_id.hpp"

namespace fenceguard {
namespace {

// VERSION-TRACEID-PARENTID-FLAGS; a later version may go on behind another dash.
constexpr std::size_t trace_at = 3;
constexpr std::size_t trace_digits = 32;
constexpr std::size_t parent_at = trace_at + trace_digits + 1;
constexpr std::size_t parent_digits = 16;
constexpr std::size_t flags_at = parent_at + parent_digits + 1;
constexpr std::size_t size_min = flags_at + 2;

bool is_hexadecimal(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// An id of zeros alone is none.
bool is_id(std::string_view text) {
  return is_hexadecimal(text) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

std::string_view trace_id_of(const http::Fields& fields) noexcept {
  const auto value = fields.single(trace_field).value_or(std::string_view{});
  if (value.size() < size_min) return {};
  const auto version = value.substr(0, 2);
  if (!is_hexadecimal(version) || version == "ff") return {};
  if (value.size() > size_min && (version == "00" || value[size_min] != '-')) return {};
  for (const auto dash : {trace_at - 1, parent_at - 1, flags_at - 1}) {
    if (value[dash] != '-') return {};
  }
  const auto trace = value.substr(trace_at, trace_digits);
  const bool is_whole = is_id(trace) && is_id(value.substr(parent_at, parent_digits)) &&
                        is_hexadecimal(value.substr(flags_at, 2));
  return is_whole ? trace : std::string_view{};
}

}  // namespace fenceguard
