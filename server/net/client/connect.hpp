#pragma once

// What a connection to a server begins with: the endpoints that its address stands for, and a socket with its
// options.
//
// Thread safety: the loop's thread only.

#include <chrono>
#include <string>
#include <vector>

#include "server/net/address.hpp"
#include "server/net/loop.hpp"
#include "server/net/net.hpp"

namespace fenceguard::net {

struct Resolved {
  std::vector<Endpoint> endpoints{};
  std::string error{};  // why there are none
};

// As resolve() does it, but neither the loop nor the end of the process waits for the resolver, and the
// coroutine for up to limit.
[[nodiscard]] Task<Resolved> resolve(Loop& loop, Address address, std::chrono::milliseconds limit);

struct SocketOptions {
  // Its end is a reset: what was given up is not delivered later, nor what a process that was killed had
  // sent.
  bool resets = false;
  // Likewise, where nothing is acknowledged for so long; 0: as the system has it.
  std::chrono::milliseconds unacknowledged_max{0};
  // A peer that is gone is noticed while nothing is said, within half a minute.
  bool probes = true;
};

// Opens socket for endpoint. An error: it cannot be opened, or could go on delivering, or outlive us in a
// child, and must not be used.
[[nodiscard]] boost::system::error_code open_socket(Socket& socket, const Endpoint& endpoint,
                                                    const SocketOptions& options);

}  // namespace fenceguard::net
