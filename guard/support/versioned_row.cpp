#include "guard/support/versioned_row.hpp"

namespace fenceguard {

const char* to_string(RowVerdict verdict) noexcept {
  switch (verdict) {
    case RowVerdict::admitted:
      return "admitted";
    case RowVerdict::stale:
      return "stale";
    case RowVerdict::conflict:
      return "conflict";
    case RowVerdict::version_conflict:
      return "version_conflict";
    case RowVerdict::not_found:
      return "not_found";
  }
  return "unknown";
}

}  // namespace fenceguard
