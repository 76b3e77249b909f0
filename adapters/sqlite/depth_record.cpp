#include "adapters/sqlite/depth_record.hpp"

#include <optional>
#include <vector>

#include "adapters/sqlite/calls.hpp"
#include "adapters/sqlite/schema.hpp"
#include "guard/wait_for.hpp"

namespace fenceguard::sqlite {
namespace {

std::int64_t checksum(std::int64_t depth) {
  return Checksum{}.add(depth).value();
}

std::optional<std::int64_t> load_depth(Ledger& ledger) {
  Statement query{ledger.database().handle(), "SELECT depth, checksum FROM fenceguard_depth WHERE id = 1"};
  if (!query.bind().step()) return std::nullopt;
  const auto depth = query.integer(0);
  if (query.integer(1) == checksum(depth)) return depth;
  throw Unavailable(
      "the resource depth that is kept is damaged (its checksum is wrong): stop, keep a copy, restore a "
      "backup");
}

void store_depth(Ledger& ledger, std::int64_t depth) {
  Statement store{ledger.database().handle(), "INSERT OR REPLACE INTO fenceguard_depth VALUES (1, ?1, ?2)"};
  store.bind(depth, checksum(depth)).run();
}

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
  const auto wanted = static_cast<std::int64_t>(depth);
  const auto apply = [wanted](Ledger& ledger) -> Outcome<std::int64_t> {
    if (const auto kept = load_depth(ledger)) return *kept;
    store_depth(ledger, wanted);
    return wanted;
  };
  return static_cast<std::size_t>(wait_for<std::int64_t>([&](Done<std::int64_t> done) {
    submit<std::int64_t>(committer_, Needs::nothing, apply, std::move(done));
  }));
}

std::int64_t EmbeddedDepthRecord::change(std::size_t depth) {
  const auto apply = [depth = static_cast<std::int64_t>(depth)](Ledger& ledger) -> Outcome<std::int64_t> {
    store_depth(ledger, depth);
    if (!ledger.is_initialised()) return std::int64_t{0};
    ledger.raise_floor(ledger.row().highest);
    drop_fences_at(ledger, ledger.row().floor);
    return ledger.row().floor;
  };
  return wait_for<std::int64_t>([&](Done<std::int64_t> done) {
    submit<std::int64_t>(committer_, Needs::nothing, apply, std::move(done));
  });
}

}  // namespace fenceguard::sqlite
