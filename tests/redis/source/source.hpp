#pragma once

// What the tests of the token source redis:// share.

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "adapters/redis/token_source.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "tests/process/eventually.hpp"
#include "tests/redis/server.hpp"

namespace fenceguard::test {

using Ms = std::chrono::milliseconds;
inline constexpr Ms long_ttl{60'000};
inline constexpr Ms long_wait{60'000};
inline constexpr std::chrono::seconds limit{30};

inline const Resource resource{"accounts/42"};

inline std::unique_ptr<TokenSource> open(const std::string& url) {
  return redis::open_source(Url::parse(url));
}

// The grant, which must be one.
inline Grant take(TokenSource& source, const Holder& holder = Holder::random(), Ms ttl = long_ttl,
                  const Resource& of = resource) {
  auto answer = source.try_acquire(of, holder, ttl);
  auto* grant = std::get_if<Grant>(&answer);
  if (grant == nullptr) throw std::runtime_error{of.name() + " is held"};
  return *grant;
}

inline bool is_held(TokenSource& source, const Holder& holder = Holder::random()) {
  return std::holds_alternative<LockBusy>(source.try_acquire(resource, holder, long_ttl));
}

// A number that a tenure of its own was granted.
inline std::int64_t token_of_a_tenure(TokenSource& source) {
  const auto grant = take(source);
  if (source.release(grant.claim) != Release::released) throw std::runtime_error{"it was not held"};
  return grant.claim.token.value();
}

// The message of the fault that function ends with; empty if it does not.
template <class Fault>
std::string message_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const Fault& fault) {
    return fault.what();
  }
  return {};
}

// How many scripts the server has run.
inline std::int64_t scripts_run(RedisServer& server) {
  const auto stats = server.call({"INFO", "commandstats"}).text;
  std::int64_t count = 0;
  for (const std::string name : {"cmdstat_evalsha:calls=", "cmdstat_eval:calls="}) {
    if (const auto at = stats.find(name); at != stats.npos)
      count += std::stoll(stats.substr(at + name.size()));
  }
  return count;
}

inline std::int64_t waiting_in_line(RedisServer& server) {
  return server.call({"ZCARD", "fenceguard:queue:{accounts/42}"}).integer;
}

}  // namespace fenceguard::test
