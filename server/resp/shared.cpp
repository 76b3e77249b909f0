#include "server/resp/shared.hpp"

namespace fenceguard::resp {

std::shared_ptr<Upstreams> Shared::upstreams_of(net::Loop& loop) {
  const std::lock_guard lock{mutex_};
  auto& found = upstreams_[&loop];
  if (!found)
    found = std::make_shared<Upstreams>(loop, options.address, options.relay.commands, options.upstreams);
  return found;
}

void Shared::drop_upstreams(net::Loop& loop) {
  std::shared_ptr<Upstreams> upstreams;
  {
    const std::lock_guard lock{mutex_};
    const auto found = upstreams_.find(&loop);
    if (found == upstreams_.end()) return;
    upstreams = std::move(found->second);
    upstreams_.erase(found);
  }
  upstreams->close();
}

}  // namespace fenceguard::resp
