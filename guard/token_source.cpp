#include "guard/token_source.hpp"

#include "guard/error.hpp"

namespace fenceguard {
void require_sensible_ttl(std::chrono::milliseconds ttl) {
  if (ttl < ttl_min || ttl > ttl_max) throw InvalidInput("a time to live is 10ms to 24 hours");
}

std::stop_token TokenSource::lost(const Claim& /*claim*/) {
  return {};
}

}  // namespace fenceguard
