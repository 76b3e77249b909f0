#include "adapters/http/upstream_connection.hpp"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>

#include "adapters/http/upstream_pool.hpp"

namespace fenceguard::proxy {

UpstreamConnection::UpstreamConnection(UpstreamPool& pool, http::Channel channel)
    : pool_{pool}, channel_{std::move(channel)} {
  pool_.add(*this);
}

UpstreamConnection::~UpstreamConnection() {
  pool_.remove(*this);
  if (channel_.is_open() && !has_unsent()) channel_.part_in_order();
}

bool UpstreamConnection::has_unsent() noexcept {
  int bytes = 0;
  return ::ioctl(channel_.socket().native_handle(), SIOCOUTQ, &bytes) != 0 || bytes > 0;
}

void UpstreamConnection::look_at_segments() noexcept {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  // Under TLS there is more to send than was given.
  if (channel_.is_tls()) return;
  if (::getsockopt(channel_.socket().native_handle(), IPPROTO_TCP, TCP_MAXSEG, &bytes, &size) == 0)
    segment_bytes_ = static_cast<std::size_t>(bytes);
}

void UpstreamConnection::set_deadline(http::SteadyTime deadline) {
  deadline_ = std::min(deadline, pool_.last_moment());
  pool_.arm(deadline_);
}

void UpstreamConnection::expire() noexcept {
  deadline_ = http::SteadyTime::max();
  is_late_ = true;
  channel_.reset();
}

}  // namespace fenceguard::proxy
