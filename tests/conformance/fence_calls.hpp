#pragma once

// The calls of a storage's fences for tests: each waits for its answer and throws the fault as an exception.
// Thread-safe as the store is.

#include "guard/store/storage.hpp"
#include "guard/support/wait_for.hpp"
#include "tests/process/eventually.hpp"

namespace fenceguard::test {

inline Ruling advance(Storage& storage, const Claim& claim) {
  return StoreGuard{storage.fences()}.advance(claim);
}

inline FenceView show(Storage& storage, const std::string& resource) {
  return wait_for<FenceView>(
      [&](Done<FenceView> done) { storage.fences().show(Resource{resource}, std::move(done)); });
}

inline std::int64_t init(Storage& storage, std::int64_t floor) {
  return wait_for<std::int64_t>(
      [&](Done<std::int64_t> done) { storage.fences().init(floor, std::move(done)); });
}

inline FenceView revoke(Storage& storage, const std::string& resource,
                        const std::optional<Claim>& lease = {}) {
  return wait_for<FenceView>(
      [&](Done<FenceView> done) { storage.fences().revoke(Resource{resource}, lease, std::move(done)); });
}

inline Compaction compact(Storage& storage, std::int64_t lowest_live) {
  return wait_for<Compaction>(
      [&](Done<Compaction> done) { storage.fences().compact(Token{lowest_live}, std::move(done)); });
}

inline FencePage list(Storage& storage, const FenceListing& listing) {
  return wait_for<FencePage>([&](Done<FencePage> done) { storage.fences().list(listing, std::move(done)); });
}

inline FenceView rebase(Storage& storage, const std::string& resource, std::int64_t to) {
  return wait_for<FenceView>([&](Done<FenceView> done) {
    storage.fences().rebase({Resource{resource}, Token{to}, "ann"}, std::move(done));
  });
}

}  // namespace fenceguard::test
