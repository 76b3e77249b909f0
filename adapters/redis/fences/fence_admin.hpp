#pragma once

// FenceAdmin: what a sidecar or a command line asks of the fences of a Redis namespace, each one script.
// Under Redis Cluster, where no script sees the whole namespace, there is nothing to initialise, to list or
// to compact.
//
// Functions on a client; thread safety is that of the client. They throw Unavailable, OutcomeUnknown, and
// InvalidInput where Redis Cluster has no answer.

#include "adapters/redis/client.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::redis {

// With fence where it explains a refusal: it was closed.
[[nodiscard]] Ruling advance(Client& client, const Claim& claim, std::int64_t jump_max);
[[nodiscard]] FenceView look(Client& client, const Resource& resource);
[[nodiscard]] FencePage list(Client& client, const FenceListing& listing);
// See FenceStore for each.
struct Revocation {
  std::optional<Claim> lease;  // the present one, unless it is absurdly high
  std::int64_t jump_max = 0;
};
[[nodiscard]] FenceView revoke(Client& client, const Resource& resource, const Revocation& revocation);
[[nodiscard]] FenceView rebase(Client& client, const FenceStore::Rebase& rebase);
[[nodiscard]] std::int64_t init(Client& client, std::int64_t floor);
[[nodiscard]] Compaction compact(Client& client, Token lowest_live);
[[nodiscard]] StoreStatus status(Client& client);
// The maxmemory-policy by which a server may evict fences, which have no time to live; nothing where none
// may, or could be asked. Of a cluster any of its servers.
[[nodiscard]] std::optional<std::string> evicting_policy(Client& client);
// Whether fences may have been evicted since init(): such a policy, which the caller sees now, or was seen
// then, is noted in the namespace, and counts until the next init() unless it is certain that nothing was
// evicted. Not under Redis Cluster, where no key stands for all.
[[nodiscard]] bool may_have_evicted(Client& client, bool is_evicting);

}  // namespace fenceguard::redis
