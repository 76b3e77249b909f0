#pragma once

// FenceAdmin: what a sidecar or a command line asks of the fences of a ZooKeeper namespace. Each change is
// one multi that proves what it rests on, as the guard's; those that meet another's change look again.
//
// Functions on a client; thread-safe. They throw Unavailable, and those that change something OutcomeUnknown.
// See FenceStore for each.

#include "adapters/zookeeper/client.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::zookeeper {

[[nodiscard]] FenceView look(Client& client, const Resource& resource);
// Leaves damaged fences out; look() says what to do about one.
[[nodiscard]] FencePage list(Client& client, const FenceListing& listing);

struct Revocation {
  std::optional<Claim> lease;     // the present one; Implausible, with nothing closed, if absurdly high
  std::int64_t highest_seen = 0;  // in the namespace, so far as the caller knows; saves a look at every fence
  std::int64_t jump_max = 0;
};
[[nodiscard]] FenceView revoke(Client& client, const Resource& resource, const Revocation& revocation);

// The new fence is closed and of no holder, because the holder of that number is not known. What was there
// may be damaged, or gone; where it rises above 'to' while this works, that is Unavailable, and it stays. The
// note of it is a node of its own below ROOT/rebased.
[[nodiscard]] FenceView rebase(Client& client, const FenceStore::Rebase& rebase);

// Makes the place of the fences too where it is missing, in the step that sets the floor. REQUIRES: floor is
// not below what was drawn before that place was lost.
[[nodiscard]] std::int64_t init(Client& client, std::int64_t floor);

// In steps, each of which removes some fences and raises the floor above them in one multi. A fence that a
// client writes meanwhile stays. A fault part of the way leaves what was done before it.
[[nodiscard]] Compaction compact(Client& client, Token lowest_live);

// StoreStatus::highest is the mark, where there is one: see highest_mark.hpp.
[[nodiscard]] StoreStatus status(Client& client);

}  // namespace fenceguard::zookeeper
