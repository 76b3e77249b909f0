#include "server/cli/target/fences.hpp"

#include <fmt/format.h>

#include "guard/error.hpp"
#include "guard/source/end_lease.hpp"
#include "guard/support/wait_for.hpp"
#include "server/cli/terminal/output.hpp"

namespace fenceguard::cli {
namespace {

template <class Call>
void if_reachable(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    complain(fmt::format("the lease ends with its time to live: {}", error.what()));
  }
}

}  // namespace

LocalFences::LocalFences(std::unique_ptr<Storage> storage, std::unique_ptr<TokenSource> source)
    : separate_source_{std::move(source)},
      storage_{std::move(storage)},
      source_{separate_source_ ? separate_source_.get() : storage_->own_source()} {}

ShownFence LocalFences::show(const Resource& resource) {
  return {wait_for<FenceView>([&](Done<FenceView> done) { store().show(resource, std::move(done)); })};
}

FencePage LocalFences::list(const FenceListing& listing) {
  return wait_for<FencePage>([&](Done<FencePage> done) { store().list(listing, std::move(done)); });
}

Ruling LocalFences::advance(const Claim& claim) {
  return StoreGuard{store()}.advance(claim);
}

FenceView LocalFences::revoke(const Resource& resource) {
  // The fence is what keeps the holder out. A source that cannot be reached leaves its lease to its time to
  // live.
  std::optional<Claim> lease;
  if_reachable([&] {
    if (source_ == nullptr) return;
    if (auto record = source_->show(resource)) lease = std::move(record->claim);
  });
  auto view =
      wait_for<FenceView>([&](Done<FenceView> done) { store().revoke(resource, lease, std::move(done)); });
  // By its claim: a client that takes the lock between the two steps has a higher token and keeps it.
  if_reachable([&] {
    if (lease) end_lease(*source_, *lease);
  });
  return view;
}

std::optional<Compaction> LocalFences::compact() {
  if (source_ == nullptr)
    throw InvalidInput("compacting needs --source: no fence of a live lease may be dropped");
  const auto lowest = source_->lowest_live();
  if (!lowest) return std::nullopt;
  return wait_for<Compaction>([&](Done<Compaction> done) { store().compact(*lowest, std::move(done)); });
}

}  // namespace fenceguard::cli
