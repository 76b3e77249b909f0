#pragma once

// Contender: what a key of a lock says of who holds or awaits it. Ours hold 'HOLDER OFFSET', so that anybody
// can tell the token, which is the key's create revision and the offset; those of etcdctl are empty.
//
// Values; thread-safe.

#include <optional>
#include <string>

#include "adapters/etcd/client.hpp"
#include "guard/claim.hpp"

namespace fenceguard::etcd {

struct Contender {
  KeyValue key;
  std::optional<Holder> holder;  // nothing: not one of ours
  std::int64_t offset = 0;       // likewise

  explicit Contender(KeyValue key_value);

  // offset: the namespace's present one, for a contender that is not one of ours. Throws Unavailable where
  // the numbers are used up.
  [[nodiscard]] Token token(std::int64_t present_offset) const;
};

[[nodiscard]] std::string contender_value(const Holder& holder, std::int64_t offset);

// The token of a key created at revision. Throws Unavailable where the numbers are used up.
[[nodiscard]] Token token_at(std::int64_t revision, std::int64_t offset);

}  // namespace fenceguard::etcd
