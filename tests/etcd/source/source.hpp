#pragma once

// What the tests of etcd's token source share.

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "adapters/etcd/client.hpp"
#include "adapters/etcd/token_source.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/etcd/cluster.hpp"
#include "tests/process/eventually.hpp"

namespace fenceguard::test {

using Ms = std::chrono::milliseconds;

inline constexpr Ms long_ttl{60'000};
inline constexpr Ms least_ttl{1'000};
inline constexpr Ms limit{60'000};
inline const Resource resource{"accounts/42"};
inline const std::string lock = "fenceguard/lock/accounts%2F42";  // of resource, as etcdctl is told it

inline std::unique_ptr<TokenSource> open(const std::string& url) {
  return etcd::open_source(Url::parse(url));
}

inline Grant take(TokenSource& source, const std::string& holder, Ms ttl = long_ttl) {
  auto answer = source.try_acquire(resource, Holder{holder}, ttl);
  if (auto* grant = std::get_if<Grant>(&answer)) return *grant;
  throw std::runtime_error{"the lock is held"};
}

inline bool is_held(TokenSource& source) {
  return std::holds_alternative<LockBusy>(source.try_acquire(resource, Holder::random(), long_ttl));
}

// The keys under a prefix, in the order in which they were created.
inline std::vector<etcd::KeyValue> keys_under(etcd::Client& client, const std::string& prefix) {
  auto all = etcd::get_all(prefix);
  all.sort = etcd::Op::Sort::by_create_revision;
  return client.range(all).found;
}

}  // namespace fenceguard::test
