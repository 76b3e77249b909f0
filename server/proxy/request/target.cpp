#include "server/proxy/request/target.hpp"

#include <algorithm>

#include "guard/support/percent.hpp"
#include "guard/support/text.hpp"
#include "server/proxy/request/field_names.hpp"

namespace fenceguard::proxy {
namespace {

std::variant<Target, BadPath> parse_path(std::string_view path, std::string_view query,
                                         std::size_t resource_depth) {
  auto parsed = parse_resource_path(path, resource_depth);
  if (auto* bad = std::get_if<BadPath>(&parsed)) return std::move(*bad);
  auto& found = std::get<ResourcePath>(parsed);
  if (found.path.find('\\') != std::string::npos)
    return BadPath{"A backslash in a path could be read as a slash."};
  return Target{std::move(found.resource), "/" + percent_encode_path(found.path), std::string{query}};
}

// What follows scheme and host; nothing if text is not a URL of host.
std::optional<std::string_view> path_of_url(std::string_view text, std::string_view host) {
  const auto scheme_end = text.find("://");
  if (scheme_end == std::string_view::npos) return std::nullopt;
  const auto scheme = text.substr(0, scheme_end);
  if (!equals_ignoring_case(scheme, "http") && !equals_ignoring_case(scheme, "https")) return std::nullopt;
  text.remove_prefix(scheme_end + 3);
  const auto authority = text.substr(0, text.find('/'));
  if (authority.empty() || !equals_ignoring_case(authority, host)) return std::nullopt;
  return text.substr(authority.size());
}

}  // namespace

std::variant<Target, BadPath> parse_target(std::string_view target, std::size_t resource_depth,
                                           FinalSlash slash) {
  const auto question = std::min(target.find('?'), target.size());
  const auto query = target.substr(question);
  if (!is_visible_ascii(query) || query.find('#') != std::string_view::npos)
    return BadPath{"A query is visible ASCII, without '#'."};
  auto path = target.substr(0, question);
  const bool is_collection = slash == FinalSlash::kept && path.size() > 1 && path.ends_with('/');
  if (is_collection) path.remove_suffix(1);
  auto parsed = parse_path(path, query, resource_depth);
  if (auto* found = std::get_if<Target>(&parsed); found != nullptr && is_collection) found->path += '/';
  return parsed;
}

std::optional<std::variant<std::string, BadPath>> parse_own_reference(std::string_view text,
                                                                      std::string_view host) {
  auto path = text;
  if (text.substr(0, 1) != "/") {
    const auto found = path_of_url(text, host);
    if (!found) return std::nullopt;
    path = *found;
  }
  if (path.empty() || path == "/") return "/";
  auto parsed = parse_target(path, 0, FinalSlash::kept);
  if (auto* bad = std::get_if<BadPath>(&parsed)) return std::move(*bad);
  const auto& found = std::get<Target>(parsed);
  return found.path + found.query;
}

std::variant<Target, BadPath> parse_destination(std::string_view destination, std::string_view host,
                                                std::size_t resource_depth) {
  auto path = destination;
  if (destination.substr(0, 1) != "/") {
    const auto found = path_of_url(destination, host);
    if (!found) return BadPath{"Destination is a path, or a URL of the host that the request names."};
    path = *found;
  }
  if (path.find_first_of("?#") != std::string_view::npos) return BadPath{"A Destination has no query."};
  auto parsed = parse_path(path, {}, resource_depth);
  if (auto* bad = std::get_if<BadPath>(&parsed)) bad->reason = "Destination: " + bad->reason;
  return parsed;
}

}  // namespace fenceguard::proxy
