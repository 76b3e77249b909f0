#include "adapters/sqlite/fences/resource_depth.hpp"

#include <vector>

#include "adapters/sqlite/fences/lane_mark.hpp"
#include "adapters/sqlite/file/checked_number.hpp"
#include "adapters/sqlite/file/submit.hpp"

namespace fenceguard::sqlite {
namespace {

constexpr CheckedNumber record{"fenceguard_depth", "depth", "the resource depth that is kept"};

// At its own height a record stands before the floor.
void drop_fences_at(FenceTransaction& transaction, std::int64_t floor) {
  Statement query{transaction.database().handle(), "SELECT resource FROM fenceguard_fence WHERE token >= ?1"};
  query.bind(floor);
  std::vector<Resource> found;
  while (query.step()) found.emplace_back(std::string{query.text(0)});
  for (const auto& resource : found) transaction.remove(resource);
}

}  // namespace

std::size_t EmbeddedDepthRecord::keep(std::size_t depth) {
  const auto apply =
      [wanted = static_cast<std::int64_t>(depth)](FenceTransaction& transaction) -> Outcome<std::int64_t> {
    if (const auto kept = record.load(transaction)) return *kept;
    record.store(transaction, wanted);
    return wanted;
  };
  return static_cast<std::size_t>(submit_and_wait<std::int64_t>(committer_, Needs::nothing, apply));
}

std::int64_t EmbeddedDepthRecord::change(std::size_t depth) {
  const auto apply =
      [wanted = static_cast<std::int64_t>(depth)](FenceTransaction& transaction) -> Outcome<std::int64_t> {
    LaneMark::distrust(transaction);
    record.store(transaction, wanted);
    if (!transaction.is_initialised()) return std::int64_t{0};
    transaction.raise_floor(transaction.row().highest);
    drop_fences_at(transaction, transaction.row().floor);
    return transaction.row().floor;
  };
  return submit_and_wait<std::int64_t>(committer_, Needs::nothing, apply);
}

}  // namespace fenceguard::sqlite
