#pragma once

// QueueEntry: what a key of a lock says of the client that holds or awaits it. Ours hold 'HOLDER OFFSET', so
// that any client can tell the token, which is the key's create revision and the offset, once the lock was
// granted, and 'HOLDER awaits' before, since a waiter takes the offset of when its turn comes; those of
// etcdctl are empty.
//
// Values; thread-safe.

#include <optional>
#include <string>

#include "adapters/etcd/client.hpp"
#include "guard/claim.hpp"

namespace fenceguard::etcd {

struct QueueEntry {
  KeyValue key;
  std::optional<Holder> holder;        // nothing: not one of ours
  std::optional<std::int64_t> offset;  // nothing: likewise, or it waits

  explicit QueueEntry(KeyValue key_value);

  // One of ours, and not waiting: what it was granted does not change any more.
  [[nodiscard]] bool is_granted() const noexcept { return offset.has_value(); }

  // present_offset: the namespace's, for an entry without its own. Throws Unavailable where the numbers
  // are used up.
  [[nodiscard]] Token token(std::int64_t present_offset) const;
};

[[nodiscard]] std::string granted_value(const Holder& holder, std::int64_t offset);
[[nodiscard]] std::string waiting_value(const Holder& holder);

// The token of a key created at revision. Throws Unavailable where the numbers are used up.
[[nodiscard]] Token token_at(std::int64_t revision, std::int64_t offset);

}  // namespace fenceguard::etcd
