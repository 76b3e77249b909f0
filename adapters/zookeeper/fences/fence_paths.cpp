#include "adapters/zookeeper/fences/fence_paths.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "guard/error.hpp"
#include "guard/support/percent.hpp"

namespace fenceguard::zookeeper {
namespace {

struct Character {
  char32_t value;
  std::size_t bytes;
};

// The first character of text. REQUIRES: text is UTF-8 and not empty.
Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  char32_t value = lead & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) value = (value << 6) | (byte(i) & 0x3fU);
  return {value, bytes};
}

// What ZooKeeper's servers refuse in a path (its documentation, 'The ZooKeeper Data Model'); they look at
// UTF-16, where all beyond the first plane are surrogates.
bool is_encoded(char32_t value) {
  return value == '/' || value == '%' || value < 0x20 || (value >= 0x7f && value <= 0x9f) ||
         (value >= 0xd800 && value <= 0xf8ff) || value >= 0xfff0;
}

}  // namespace

void require_path(std::string_view path, bool is_sequential) {
  if (!path.starts_with('/')) {
    throw InvalidInput(fmt::format("the path of a guarded operation is absolute, and this is '{}'", path));
  }
  if (std::ranges::any_of(path, [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; }))
    throw InvalidInput("the path of a guarded operation holds no control characters, and no NUL");
  if (path == "/" && !is_sequential) return;
  const auto whole = std::string{path.substr(1)} + (is_sequential ? "0" : "");
  for (std::size_t at = 0; at <= whole.size();) {
    const auto end = std::min(whole.find('/', at), whole.size());
    const auto segment = std::string_view{whole}.substr(at, end - at);
    if (segment.empty() || segment == "." || segment == "..") {
      throw InvalidInput(fmt::format(
          "the path of a guarded operation has no empty and no dot segment, and this is '{}'", path));
    }
    at = end + 1;
  }
}

std::string segment_of(const Resource& resource) {
  std::string segment;
  std::string_view rest = resource.name();
  while (!rest.empty()) {
    const auto [value, bytes] = first_of(rest);
    for (const char byte : rest.substr(0, bytes)) {
      if (is_encoded(value)) {
        fmt::format_to(std::back_inserter(segment), "%{:02X}", static_cast<unsigned char>(byte));
      } else {
        segment += byte;
      }
    }
    rest.remove_prefix(bytes);
  }
  return segment;
}

std::optional<Resource> resource_of(std::string_view segment) {
  const auto name = percent_decode(segment);
  auto resource = name ? Resource::parse(*name) : std::nullopt;
  // Two nodes must not stand for one resource.
  if (!resource || segment_of(*resource) != segment) return std::nullopt;
  return resource;
}

FencePaths::FencePaths(const std::string& root)
    : root_{root},
      fences_{root + "/fences"},
      floor_{root + "/floor"},
      highest_{root + "/highest"},
      rebased_{root + "/rebased"},
      offset_{root + "/offset"},
      locks_{root + "/locks"},
      lock_paths_{root + "/lock_paths"} {}

std::string FencePaths::fence(const Resource& resource) const {
  return fences_ + "/" + segment_of(resource);
}

bool FencePaths::is_reserved(std::string_view path) const {
  for (const auto* kept : {&fences_, &floor_, &highest_, &rebased_, &offset_, &locks_, &lock_paths_}) {
    const std::string_view own = *kept;
    if (path.starts_with(own) && (path.size() == own.size() || path[own.size()] == '/')) return true;
  }
  return false;
}

}  // namespace fenceguard::zookeeper
