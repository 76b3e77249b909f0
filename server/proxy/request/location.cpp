#include "server/proxy/request/location.hpp"

#include "server/proxy/request/field_names.hpp"

namespace fenceguard::proxy {
namespace {

// HOST:PORT without the port that the scheme has anyway.
std::string_view without_usual_port(std::string_view authority, bool is_tls) noexcept {
  for (const std::string_view usual : {is_tls ? ":443" : ":80", ":"}) {
    if (authority.ends_with(usual)) return authority.substr(0, authority.size() - usual.size());
  }
  return authority;
}

// What follows the origin in text; text where it begins with its path. No data: it is another's.
std::string_view after_origin(std::string_view text, const Origin& origin) noexcept {
  auto rest = text;
  if (!rest.starts_with("//")) {
    if (rest.starts_with('/')) return text;
    const std::string_view scheme = origin.is_tls ? "https:" : "http:";
    if (!equals_ignoring_case(rest.substr(0, scheme.size()), scheme)) return {};
    rest.remove_prefix(scheme.size());
    if (!rest.starts_with("//")) return {};
  }
  rest.remove_prefix(2);
  const auto authority = rest.substr(0, rest.find_first_of("/?#"));
  const bool is_ours = equals_ignoring_case(without_usual_port(authority, origin.is_tls),
                                            without_usual_port(origin.host, origin.is_tls));
  if (!is_ours) return {};
  rest.remove_prefix(authority.size());
  return rest.empty() ? std::string_view{"/"} : rest;
}

}  // namespace

bool is_reference(std::string_view name) noexcept {
  return equals_ignoring_case(name, "Location") || equals_ignoring_case(name, "Content-Location");
}

std::string as_seen_by_client(std::string_view reference, const Origin& origin) {
  auto path = after_origin(reference, origin);
  if (path.data() == nullptr || !path.starts_with(origin.base_path)) return std::string{reference};
  path.remove_prefix(origin.base_path.size());
  // Alone it would name another host.
  if (path.starts_with("//")) return std::string{reference};
  if (path.empty()) return "/";
  if (path.starts_with('/')) return std::string{path};
  const bool is_of_base_itself = path.starts_with('?') || path.starts_with('#');
  return is_of_base_itself ? "/" + std::string{path} : std::string{reference};
}

}  // namespace fenceguard::proxy
