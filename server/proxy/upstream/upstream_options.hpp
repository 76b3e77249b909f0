#pragma once

// UpstreamOptions: where the upstream is and how it is spoken to.
//
// Immutable once made, but for the files of TLS, which can be read again; thread-safe then.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "guard/source/url.hpp"
#include "guard/store/lane_options.hpp"
#include "server/net/address.hpp"
#include "server/net/tls/tls.hpp"
#include "server/proxy/upstream/request_writer.hpp"

namespace fenceguard::proxy {

struct UpstreamOptions {
  std::vector<net::Endpoint> endpoints;  // of the same server, in the order in which they are tried
  Origin origin;
  std::shared_ptr<net::TlsContext> tls;  // null: in the clear
  std::chrono::milliseconds upstream_timeout{30'000};
  // Our kernel gives up what was sent and is not acknowledged so long before the lane opens again.
  std::chrono::milliseconds settle{30'000};

  // url: http://HOST[:PORT][/BASE/PATH] or https:. Asks the resolver and reads the files of TLS. Throws
  // InvalidInput for a URL or file that is not fit, Unavailable if the host is not known.
  [[nodiscard]] static UpstreamOptions from(const Url& url, const LaneOptions& lane);
};

}  // namespace fenceguard::proxy
