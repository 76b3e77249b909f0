#include "adapters/sqlite/fences/lane_mark.hpp"

#include "adapters/sqlite/file/checked_number.hpp"

namespace fenceguard::sqlite {
namespace {

constexpr CheckedNumber mark{"fenceguard_lane", "is_open", "the lane's mark"};

}  // namespace

std::optional<std::int64_t> LaneMark::load(FenceTransaction& transaction) {
  return mark.load(transaction);
}

void LaneMark::store(FenceTransaction& transaction, std::int64_t number) {
  mark.store(transaction, number);
}

void LaneMark::distrust(FenceTransaction& transaction) {
  if (const auto found = load(transaction); found && *found != open) store(transaction, distrusted);
}

}  // namespace fenceguard::sqlite
