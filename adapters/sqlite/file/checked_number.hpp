#pragma once

// CheckedNumber: a table that holds one number, with a checksum over it, so that a damaged one is not
// believed.
//
// Not thread-safe: as the FenceTransaction.

#include <cstdint>
#include <optional>
#include <string_view>

#include "adapters/sqlite/file/fence_transaction.hpp"

namespace fenceguard::sqlite {

struct CheckedNumber {
  std::string_view table;
  std::string_view column;
  std::string_view what;  // for what is thrown: 'the lane's mark'

  // Nothing if none was stored. Throws Unavailable if it is damaged.
  [[nodiscard]] std::optional<std::int64_t> load(FenceTransaction& transaction) const;
  void store(FenceTransaction& transaction, std::int64_t number) const;
};

}  // namespace fenceguard::sqlite
