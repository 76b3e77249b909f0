#include "adapters/zookeeper/wire/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "guard/error.hpp"
#include "guard/support/percent.hpp"

namespace fenceguard::zookeeper {
namespace {

constexpr std::size_t digits = 10;

struct Character {
  std::uint32_t code;
  std::size_t bytes;
};

// REQUIRES: text begins with a character of UTF-8.
Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  if (byte(0) < 0x80) return {byte(0), 1};
  if (byte(0) < 0xE0) return {(byte(0) & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (byte(0) < 0xF0) return {(byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {0x10000, 4};
}

// As PathUtils of the server does, to which what lies above U+FFFF is two surrogates.
bool is_refused(std::uint32_t code) {
  return code <= 0x1F || (code >= 0x7F && code <= 0x9F) || (code >= 0xD800 && code <= 0xF8FF) ||
         code >= 0xFFF0;
}

std::string encoded(std::string_view bytes) {
  std::string result;
  for (const char c : bytes) result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return result;
}

}  // namespace

std::string entry_name(Layout layout, const std::string& guid) {
  if (layout == Layout::kazoo) return guid + "__lock__";
  const std::string_view g = guid;
  return fmt::format("_c_{}-{}-{}-{}-{}-lock-", g.substr(0, 8), g.substr(8, 4), g.substr(12, 4),
                     g.substr(16, 4), g.substr(20));
}

std::optional<std::uint32_t> sequence_of(std::string_view name) {
  auto begin = name.find_last_not_of("0123456789");
  begin = begin == name.npos ? 0 : begin + 1;
  auto number = name.substr(begin);
  auto before = name.substr(0, begin);
  // Java's %010d counts the sign among the ten places: 'lock--000000001' has one, 'lock-0000000001' has none.
  const bool is_negative = before.ends_with("lock--") || before.ends_with("__lock__-");
  if (is_negative) before.remove_suffix(1);
  const auto places = number.size() + (is_negative ? 1 : 0);
  if (places != digits && !(is_negative && number.size() == digits)) return std::nullopt;
  if (!before.ends_with("lock-") && !before.ends_with("__lock__")) return std::nullopt;
  std::uint64_t value = 0;
  std::from_chars(number.data(), number.data() + number.size(), value);
  const auto low = static_cast<std::uint32_t>(value);
  return is_negative ? 0U - low : low;
}

std::vector<std::string> entries_of(const std::vector<std::string>& children) {
  std::vector<std::pair<std::uint32_t, const std::string*>> found;
  for (const auto& name : children) {
    if (const auto sequence = sequence_of(name)) found.emplace_back(*sequence, &name);
  }
  // Sorted by their distance from one of them, which is an order where none is as far as half the circle.
  const auto origin = found.empty() ? 0 : found.front().first;
  std::ranges::sort(found, [&](const auto& a, const auto& b) {
    const auto from_a = static_cast<std::int32_t>(a.first - origin);
    const auto from_b = static_cast<std::int32_t>(b.first - origin);
    return from_a != from_b ? from_a < from_b : *a.second < *b.second;
  });
  std::vector<std::string> result;
  result.reserve(found.size());
  for (const auto& [sequence, name] : found) result.push_back(*name);
  return result;
}

std::string segment_name(std::string_view segment) {
  std::string result;
  for (std::size_t i = 0; i < segment.size();) {
    const auto character = first_of(segment.substr(i));
    const auto bytes = segment.substr(i, character.bytes);
    if (is_refused(character.code) || bytes == "%") {
      result += encoded(bytes);
    } else {
      result += bytes;
    }
    i += character.bytes;
  }
  if (!sequence_of(result)) return result;
  const char last = result.back();
  result.pop_back();
  return result + encoded({&last, 1});
}

LockPath::LockPath(const std::string& root, const std::string& pattern) {
  const auto whole = pattern.empty() ? root + "/locks/%s" : pattern;
  const auto place = whole.find("%s");
  const bool is_path = whole.starts_with('/') && !whole.ends_with('/') && whole.find("//") == whole.npos;
  if (!is_path || place == whole.npos || whole.find("%s", place + 1) != whole.npos ||
      whole[place - 1] != '/' || place < 2 || whole.starts_with("/zookeeper/")) {
    throw InvalidInput(fmt::format(
        "?lock_path of a zookeeper: URL is an absolute path with one %s after a slash, which stands for "
        "the resource, such as /locks/%s, and this is '{}'",
        pattern));
  }
  top_ = whole.substr(0, place - 1);
  before_ = whole.substr(0, place);
  after_ = whole.substr(place + 2);
}

std::string LockPath::of(const Resource& resource) const {
  std::string path = before_;
  std::string_view rest = resource.name();
  for (;;) {
    const auto slash = rest.find('/');
    path += segment_name(rest.substr(0, slash));
    if (slash == rest.npos) return path + after_;
    path += '/';
    rest.remove_prefix(slash + 1);
  }
}

std::optional<Resource> LockPath::resource_of(const std::string& path) const {
  if (path.size() <= before_.size() + after_.size() || !path.starts_with(before_)) return std::nullopt;
  const auto name = percent_decode(
      std::string_view{path}.substr(before_.size(), path.size() - before_.size() - after_.size()));
  auto resource = name ? Resource::parse(*name) : std::nullopt;
  return resource && of(*resource) == path ? resource : std::nullopt;
}

bool LockPath::may_be_above(const std::string& path, const std::string& prefix) const {
  if (path.size() < before_.size()) return true;
  const auto name = percent_decode(std::string_view{path}.substr(before_.size()));
  return name && (name->starts_with(prefix) || prefix.starts_with(*name + "/"));
}

}  // namespace fenceguard::zookeeper
