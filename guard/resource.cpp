#include "guard/resource.hpp"

#include <sys/random.h>

#include <array>
#include <cstdint>

#include "guard/error.hpp"
#include "guard/support/text.hpp"

namespace fenceguard {
namespace {

// C0 controls, DEL, and the C1 controls U+0080 to U+009F.
bool is_control(std::string_view character) noexcept {
  const auto first = static_cast<unsigned char>(character[0]);
  if (first < 0x20 || first == 0x7F) return true;
  return first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

std::string_view segment_objection(std::string_view segment) noexcept {
  if (segment.empty()) return "a resource has no empty segment: no slash at either end, no two in a row";
  if (segment == "." || segment == "..") return "a resource has no dot segment ('.' or '..')";
  return {};
}

}  // namespace

std::string_view Resource::objection(std::string_view name) noexcept {
  if (name.empty()) return "a resource has a name of 1 to 512 bytes";
  if (name.size() > bytes_max) return "a resource's name has at most 512 bytes";
  std::size_t segment_start = 0;
  for (std::size_t i = 0; i < name.size();) {
    const std::size_t length = utf8_sequence(name.substr(i));
    if (length == 0) return "a resource's name is UTF-8, and this is not";
    if (is_control(name.substr(i, length))) return "a resource's name has no control characters";
    if (name[i] == '/') {
      const auto objection = segment_objection(name.substr(segment_start, i - segment_start));
      if (!objection.empty()) return objection;
      segment_start = i + 1;
    }
    i += length;
  }
  return segment_objection(name.substr(segment_start));
}

Resource::Resource(std::string name) : name_{std::move(name)} {
  const auto why = objection(name_);
  if (!why.empty()) throw InvalidInput(std::string{why});
}

std::optional<Resource> Resource::parse(std::string_view name) {
  if (!objection(name).empty()) return std::nullopt;
  return Resource{std::string{name}};
}

Holder::Holder(std::string id) : id_{std::move(id)} {
  if (id_.size() > bytes_max) throw InvalidInput("a holder has at most 128 bytes");
  for (const char c : id_) {
    if (c < 0x21 || c > 0x7E) throw InvalidInput("a holder is visible ASCII, without spaces");
  }
}

std::optional<Holder> Holder::parse(std::string_view id) {
  if (id.empty()) return std::nullopt;
  try {
    return Holder{std::string{id}};
  } catch (const InvalidInput&) {
    return std::nullopt;
  }
}

Holder Holder::random() {
  std::array<unsigned char, 16> bytes{};
  // Up to 256 bytes come whole or not at all (getrandom(2)).
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw Unavailable("the kernel gives no random bytes");
  }
  static constexpr char digits[] = "0123456789abcdef";
  std::string id;
  for (const unsigned char byte : bytes) {
    id += digits[byte >> 4];
    id += digits[byte & 15];
  }
  return Holder{std::move(id)};
}

}  // namespace fenceguard
