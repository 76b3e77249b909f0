#include "adapters/etcd/fences/fence_keys.hpp"

#include <fmt/format.h>

#include "guard/error.hpp"
#include "guard/support/fence_text.hpp"

namespace fenceguard::etcd {
namespace {

// A range_end of one zero byte means every key from key on (etcd API, RangeRequest).
constexpr std::string_view no_end{"\0", 1};

}  // namespace

bool FenceKeys::is_reserved(const Op& op) const {
  if (op.range_end.empty()) return op.key.starts_with(own_);
  return op.key < own_end_ && (op.range_end == no_end || op.range_end > own_);
}

std::optional<Fence> fence_in(const OpAnswer& answer, const Resource& resource) {
  if (answer.found.empty()) return std::nullopt;
  if (auto fence = parse_fence(answer.found.front().value)) return fence;
  throw Unavailable(fmt::format(
      "the fence of '{}' in etcd is damaged: set it with 'fenceguard fence rebase' if you know the "
      "highest token",
      resource.name()));
}

std::optional<std::int64_t> floor_in(const OpAnswer& answer) {
  if (answer.found.empty()) return std::nullopt;
  if (const auto floor = parse_decimal(answer.found.front().value)) return floor;
  throw Unavailable(
      fmt::format("the floor '{}' in etcd is damaged: delete it, and run 'fenceguard fence init' with "
                  "--floor if you know it",
                  answer.found.front().key));
}

}  // namespace fenceguard::etcd
