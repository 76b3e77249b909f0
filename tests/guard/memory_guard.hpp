#pragma once

// MemoryGuard: the rule over fences and values that live in this process, for tests of what is built on top
// of guards. Thread-safe.

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "guard/guard.hpp"

namespace fenceguard::test {

class MemoryGuard : public Guard {
 public:
  [[nodiscard]] Ruling advance(const Claim& claim) override {
    if (const auto hook = std::exchange(before_advance, nullptr)) hook(claim);
    return apply(claim.without_sequence(), [] {});
  }

  [[nodiscard]] Ruling write(const Claim& claim, const std::string& value) {
    return apply(claim, [&] { values_[claim.resource] = value; });
  }

  [[nodiscard]] std::string value(const Resource& resource) const {
    const std::scoped_lock lock{mutex_};
    const auto found = values_.find(resource);
    return found == values_.end() ? "" : found->second;
  }

  // Called once, at the start of the next advance, for what happens between the grant and it.
  std::function<void(const Claim&)> before_advance;

 private:
  template <class Write>
  Ruling apply(const Claim& claim, const Write& write) {
    const std::scoped_lock lock{mutex_};
    auto& view = views_[claim.resource];
    const auto ruling = judge(view, claim);
    view.record = ruling.fence;
    if (ruling.verdict == Verdict::admitted) write();
    return ruling;
  }

  mutable std::mutex mutex_;
  std::map<Resource, FenceView> views_;
  std::map<Resource, std::string> values_;
};

}  // namespace fenceguard::test
