#include "guard/token_source.hpp"

#include <fmt/format.h>

#include "guard/error.hpp"

namespace fenceguard {
void require_sensible_ttl(std::chrono::milliseconds ttl) {
  if (ttl < ttl_min || ttl > ttl_max) throw InvalidInput("a time to live is 10ms to 24 hours");
}

void TokenSource::lift(const Claim& fresh, std::int64_t highest) {
  const auto granted = fresh.token.value();
  if (highest <= 0) return;
  if (highest > granted && highest - granted > raise_max) {
    throw Implausible(
        fmt::format("the source has granted {} for '{}', and the guard has seen {}: a source is not raised "
                    "so far. If a client "
                    "made that number up, set the fence back ('fenceguard fence rebase'); if it is right, "
                    "raise the source by hand "
                    "('fenceguard lease raise --far')",
                    granted, fresh.resource.name(), highest));
  }
  raise(fresh.resource, Token{highest});
}

std::stop_token TokenSource::lost(const Claim& /*claim*/) {
  return {};
}

}  // namespace fenceguard
