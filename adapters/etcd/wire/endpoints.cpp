#include "adapters/etcd/wire/endpoints.hpp"

#include <algorithm>

namespace fenceguard::etcd {

std::vector<std::size_t> Endpoints::order(Time now) const {
  const std::scoped_lock lock{mutex_};
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < aside_until_.size(); ++i)
    result.push_back((present_ + i) % aside_until_.size());
  const auto since = [&](std::size_t i) { return aside_until_[i] > now ? aside_until_[i] : Time{}; };
  std::ranges::stable_sort(result, {}, since);
  return result;
}

void Endpoints::answered(std::size_t endpoint, Time now) {
  const std::scoped_lock lock{mutex_};
  aside_until_[endpoint] = Time{};
  if (aside_until_[present_] > now) present_ = endpoint;
}

void Endpoints::failed(std::size_t endpoint, Time now) {
  const std::scoped_lock lock{mutex_};
  aside_until_[endpoint] = now + aside_for;
}

}  // namespace fenceguard::etcd
