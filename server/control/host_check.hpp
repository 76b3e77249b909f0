#pragma once

// HostCheck: keeps web pages away from a side of the guard. A page can make a browser send requests here, but
// it cannot choose their Host (which foils DNS rebinding: its own name may lead to our address, and then the
// browser lets it send and read whatever it likes) nor hide its Origin.
//
// Thread safety: set_address() once; everything else from any thread. Before it, nothing is ours.

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/wire/message.hpp"

namespace fenceguard {

class HostCheck {
 public:
  // Of the data side, the port does not matter: what stands in front of it may have another.
  enum class Side { data, control };

  // further: host names besides localhost, 127.0.0.1 and [::1] by which the side may be called.
  HostCheck(Side side, std::vector<std::string> further);

  // The address as it is listened on: HOST:PORT, which adds HOST, or unix:/path.
  void set_address(const std::string& address);

  // Host is one of ours, with our port or none. Over a Unix socket any will do: no browser speaks it. Nor
  // does one leave Host out, as clients of HTTP/1.0 do on the data side.
  [[nodiscard]] bool is_our_host(const http::Request& head) const;
  // The same of one Host, on the data side and not over a Unix socket.
  [[nodiscard]] bool is_our_host(std::string_view host) const { return is_ours(host, false); }
  // The answer to a request whose Host is not: it says what to set.
  [[nodiscard]] std::optional<http::Response> refuse_host(const http::Request& head) const;

  // There is no Origin, or it is ours.
  [[nodiscard]] bool is_our_origin(const http::Request& head) const;

 private:
  [[nodiscard]] bool is_ours(std::string_view host_and_port, bool needs_port) const;

  const Side side_;
  std::vector<std::string> hosts_;  // IPv6 in brackets
  std::string port_;
  std::atomic<bool> is_set_{false};  // hosts_ and port_ do not change from then on
};

}  // namespace fenceguard
