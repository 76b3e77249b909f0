#include "adapters/etcd/lock/offset.hpp"

#include <fmt/format.h>

#include "guard/error.hpp"
#include "guard/token.hpp"

namespace fenceguard::etcd {

Offset::Known Offset::known() const {
  const std::scoped_lock lock{mutex_};
  return known_;
}

Compare Offset::is(const Known& known) const {
  return known.is_absent ? is_absent(key_) : value_is(key_, std::to_string(known.value));
}

Op Offset::get() const {
  return etcd::get(key_);
}

Op Offset::set(std::int64_t value) const {
  return put(key_, std::to_string(value));
}

Offset::Known Offset::learn(const OpAnswer& found) {
  Known known;
  if (!found.found.empty()) {
    const auto value = parse_decimal(found.found.front().value);
    if (!value) throw Unavailable(fmt::format("the key {} holds no number; repair or remove it", key_));
    known = {*value, false};
  }
  const std::scoped_lock lock{mutex_};
  known_ = known;
  return known;
}

}  // namespace fenceguard::etcd
