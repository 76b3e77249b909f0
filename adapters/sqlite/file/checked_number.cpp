#include "adapters/sqlite/file/checked_number.hpp"

#include <fmt/format.h>

#include "adapters/sqlite/file/schema.hpp"

namespace fenceguard::sqlite {
namespace {

std::int64_t checksum(std::int64_t number) {
  return Checksum{}.add(number).value();
}

}  // namespace

std::optional<std::int64_t> CheckedNumber::load(FenceTransaction& transaction) const {
  const auto sql = fmt::format("SELECT {}, checksum FROM {} WHERE id = 1", column, table);
  Statement query{transaction.database().handle(), sql};
  if (!query.bind().step()) return std::nullopt;
  const auto number = query.integer(0);
  if (query.integer(1) == checksum(number)) return number;
  throw Unavailable(
      fmt::format("{} is damaged (its checksum is wrong): stop, keep a copy, restore a backup", what));
}

void CheckedNumber::store(FenceTransaction& transaction, std::int64_t number) const {
  const auto sql = fmt::format("INSERT OR REPLACE INTO {} VALUES (1, ?1, ?2)", table);
  Statement store{transaction.database().handle(), sql};
  store.bind(number, checksum(number)).run();
}

}  // namespace fenceguard::sqlite
