#pragma once

// Fences: the records and the floor of one namespace, judged by the product's own rule. What a storage keeps
// durably; each call is one atomic step.

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "guard/judge.hpp"

namespace fenceguard::proof {

class Fences {
 public:
  [[nodiscard]] FenceView view(const Resource& resource) const {
    const auto found = records_.find(resource.name());
    return {found == records_.end() ? std::nullopt : std::optional{found->second}, floor_};
  }
  [[nodiscard]] bool is_beyond_bound(const Claim& claim, std::int64_t bound) const {
    return is_implausible(claim, highest(), bound);
  }
  // Judges, and keeps what is to be remembered.
  Ruling rule(const Claim& claim) {
    Ruling ruling = judge(view(claim.resource), claim);
    keep(claim.resource, ruling);
    return ruling;
  }
  void keep(const Resource& resource, const Ruling& ruling) {
    if (ruling.changed) records_.insert_or_assign(resource.name(), *ruling.fence);
  }
  FenceView close(const Resource& resource) {
    const auto found = records_.find(resource.name());
    if (found != records_.end()) found->second.closed = true;
    return view(resource);
  }
  void raise_floor(std::int64_t floor) { floor_ = std::max(floor_, floor); }
  void forget() { records_.clear(); }
  [[nodiscard]] std::int64_t highest() const {
    std::int64_t highest = floor_;
    for (const auto& [name, fence] : records_) highest = std::max(highest, fence.token.value());
    return highest;
  }

 private:
  std::map<std::string, Fence> records_;
  std::int64_t floor_ = 0;
};

}  // namespace fenceguard::proof
