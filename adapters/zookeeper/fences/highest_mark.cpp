#include "adapters/zookeeper/fences/highest_mark.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "guard/error.hpp"
#include "guard/token.hpp"

namespace fenceguard::zookeeper {

std::int64_t HighestMark::bound() const noexcept {
  return value + std::min(slack, std::numeric_limits<std::int64_t>::max() - value);
}

Op HighestMark::keep_true(const FencePaths& paths, std::int64_t token) const {
  return is_lifted_by(token) ? set(paths.highest(), std::to_string(token), version)
                             : check(paths.highest(), version);
}

HighestMark HighestMark::after(std::int64_t token) const noexcept {
  return is_lifted_by(token) ? HighestMark{token, version_after(version)} : *this;
}

std::optional<HighestMark> mark_in(const FencePaths& paths, const Answer& answer) {
  if (answer.code != Code::ok) return std::nullopt;
  const auto value = parse_decimal(answer.data);
  if (value) return HighestMark{*value, answer.stat.version};
  throw Unavailable(fmt::format(
      "{} holds no number; delete it: it is made anew from the fences at the next claim", paths.highest()));
}

}  // namespace fenceguard::zookeeper
