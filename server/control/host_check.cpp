#include "server/control/host_check.hpp"

#include <algorithm>

#include "guard/support/text.hpp"
#include "server/data/problem.hpp"

namespace fenceguard {

HostCheck::HostCheck(Side side, std::vector<std::string> further) : side_{side}, hosts_{std::move(further)} {
  hosts_.insert(hosts_.end(), {"localhost", "127.0.0.1", "[::1]"});
}

void HostCheck::set_address(const std::string& address) {
  const auto colon = address.rfind(':');
  if (!address.starts_with("unix:") && colon != std::string::npos) {
    hosts_.push_back(address.substr(0, colon));
    port_ = address.substr(colon + 1);
  }
  is_set_.store(true, std::memory_order_release);
}

bool HostCheck::is_our_host(const http::Request& head) const {
  if (head.local_socket) return true;
  if (side_ == Side::data && !head.fields.contains("Host")) return true;
  const auto host = head.fields.single("Host");
  return host && is_ours(*host, false);
}

std::optional<http::Response> HostCheck::refuse_host(const http::Request& head) const {
  if (is_our_host(head)) return std::nullopt;
  if (side_ == Side::data) {
    return to_response(
        Problem::foreign_host,
        {"Call the data side by the address that it listens on, or give the host name in --data-host."});
  }
  return to_response(
      Problem::foreign_host,
      {"Call the control side by the address that it listens on, or give the host name in "
       "--control-host. /metrics, /healthz and /readyz are answered under every name on --probe."});
}

bool HostCheck::is_our_origin(const http::Request& head) const {
  if (head.local_socket) return true;
  // A page's images and scripts come without Origin, and browsers tell whose they are. A link to us may be
  // followed.
  const auto site = head.fields.single("Sec-Fetch-Site");
  if (side_ == Side::control && site && *site != "same-origin" && *site != "none" &&
      head.fields.single("Sec-Fetch-Dest") != "document")
    return false;
  if (!head.fields.contains("Origin")) return true;
  const auto origin = head.fields.single("Origin");
  constexpr std::string_view scheme = "http://";
  return origin && origin->starts_with(scheme) && is_ours(origin->substr(scheme.size()), true);
}

bool HostCheck::is_ours(std::string_view host_and_port, bool needs_port) const {
  if (!is_set_.load(std::memory_order_acquire)) return false;
  std::string_view host = host_and_port;
  const auto colon = host.rfind(':');
  const bool has_port = colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos;
  if (has_port) {
    if (side_ == Side::control && host.substr(colon + 1) != port_) return false;
    host = host.substr(0, colon);
  } else if (needs_port && port_ != "80") {
    return false;
  }
  return std::ranges::any_of(hosts_,
                             [host](const std::string& ours) { return equals_ignoring_case(ours, host); });
}

}  // namespace fenceguard
