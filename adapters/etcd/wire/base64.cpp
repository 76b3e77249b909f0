#include "adapters/etcd/wire/base64.hpp"

#include <array>
#include <cstdint>

namespace fenceguard::etcd {
namespace {

constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::uint8_t none = 255;

constexpr auto values = [] {
  std::array<std::uint8_t, 256> result{};
  result.fill(none);
  for (std::size_t i = 0; i < digits.size(); ++i)
    result[static_cast<unsigned char>(digits[i])] = static_cast<std::uint8_t>(i);
  return result;
}();

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](std::size_t at) {
      return at < bytes.size() ? static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at])) : 0U;
    };
    const std::uint32_t three = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    text += digits[three >> 18];
    text += digits[three >> 12 & 63];
    text += i + 1 < bytes.size() ? digits[three >> 6 & 63] : '=';
    text += i + 2 < bytes.size() ? digits[three & 63] : '=';
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(padding);
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  std::uint32_t window = 0;
  int bits = 0;
  for (const char c : text) {
    const auto value = values[static_cast<unsigned char>(c)];
    if (value == none) return std::nullopt;
    window = window << 6 | value;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(window >> bits & 255);
  }
  return bytes;
}

}  // namespace fenceguard::etcd
