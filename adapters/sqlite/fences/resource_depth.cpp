#include "adapters/sqlite/fences/resource_depth.hpp"

#include <vector>

#include "adapters/sqlite/file/checked_number.hpp"
#include "adapters/sqlite/file/submit.hpp"

namespace fenceguard::sqlite {
namespace {

constexpr CheckedNumber record{"fenceguard_depth", "depth", "the resource depth that is kept"};

// At its own height a record stands before the floor.
void drop_fences_at(Ledger& ledger, std::int64_t floor) {
  Statement query{ledger.database().handle(), "SELECT resource FROM fenceguard_fence WHERE token >= ?1"};
  query.bind(floor);
  std::vector<Resource> found;
  while (query.step()) found.emplace_back(std::string{query.text(0)});
  for (const auto& resource : found) ledger.remove(resource);
}

}  // namespace

std::size_t EmbeddedDepthRecord::keep(std::size_t depth) {
  const auto apply = [wanted = static_cast<std::int64_t>(depth)](Ledger& ledger) -> Outcome<std::int64_t> {
    if (const auto kept = record.load(ledger)) return *kept;
    record.store(ledger, wanted);
    return wanted;
  };
  return static_cast<std::size_t>(submit_and_wait<std::int64_t>(committer_, Needs::nothing, apply));
}

std::int64_t EmbeddedDepthRecord::change(std::size_t depth) {
  const auto apply = [wanted = static_cast<std::int64_t>(depth)](Ledger& ledger) -> Outcome<std::int64_t> {
    record.store(ledger, wanted);
    if (!ledger.is_initialised()) return std::int64_t{0};
    ledger.raise_floor(ledger.row().highest);
    drop_fences_at(ledger, ledger.row().floor);
    return ledger.row().floor;
  };
  return submit_and_wait<std::int64_t>(committer_, Needs::nothing, apply);
}

}  // namespace fenceguard::sqlite
