#include "adapters/http/upstream_connection.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>

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
