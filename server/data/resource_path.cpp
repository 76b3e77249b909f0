#include "server/data/resource_path.hpp"

#include "guard/support/percent.hpp"

namespace fenceguard {
namespace {

// The first depth segments of path; empty if it has fewer.
std::string_view first_segments(std::string_view path, std::size_t depth) noexcept {
  std::size_t end = 0;
  for (std::size_t segment = 0; segment < depth; ++segment) {
    if (end == path.size()) return {};
    if (segment > 0) ++end;
    end = path.find('/', end);
    if (end == std::string_view::npos) end = path.size();
  }
  return path.substr(0, end);
}

}  // namespace

std::string_view fenced_part(std::string_view path, std::size_t resource_depth) noexcept {
  return resource_depth == 0 ? path : first_segments(path, resource_depth);
}

std::variant<std::string, BadPath> decode_path(std::string_view path) {
  for (auto at = path.find('%'); at != std::string_view::npos; at = path.find('%', at + 1)) {
    const auto escape = path.substr(at, 3);
    if (escape == "%2f" || escape == "%2F")
      return BadPath{"An encoded slash (%2F) could be read in two ways."};
    if (escape == "%00") return BadPath{"A path has no NUL."};
  }
  auto decoded = percent_decode(path);
  if (!decoded) return BadPath{"A '%' is not followed by two hexadecimal digits."};
  return std::move(*decoded);
}

std::variant<ResourcePath, BadPath> parse_resource_path(std::string_view target, std::size_t resource_depth) {
  if (target.empty() || target.front() != '/')
    return BadPath{"The request target is a path that starts with a slash."};
  if (target.find_first_of("?#") != std::string_view::npos)
    return BadPath{"There is no query on the data side."};
  if (target == "/") return BadPath{"'/' itself is not a resource."};
  auto decoded = decode_path(target.substr(1));
  if (auto* bad = std::get_if<BadPath>(&decoded)) return std::move(*bad);

  auto& path = std::get<std::string>(decoded);
  if (const auto why = Resource::objection(path); !why.empty()) return BadPath{std::string{why} + "."};
  if (resource_depth == 0) {
    Resource resource{path};
    return ResourcePath{std::move(resource), std::move(path)};
  }
  const auto name = first_segments(path, resource_depth);
  if (name.empty()) {
    return BadPath{"A path has at least " + std::to_string(resource_depth) +
                   " segments here: this one is above the resources."};
  }
  Resource resource{std::string{name}};
  return ResourcePath{std::move(resource), std::move(path)};
}

}  // namespace fenceguard
