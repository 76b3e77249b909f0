#pragma once

// LockKeys: what a token source offers beside TokenSource if other libraries take the very same locks, each
// by a key or node of its own: the token of such a holder, which its library does not tell.
//
// Thread safety and faults: as TokenSource.

#include <optional>
#include <string>

#include "guard/token.hpp"

namespace fenceguard {

class LockKeys {
 public:
  virtual ~LockKeys() = default;
  // The token of the holder whose key (etcd) or node (ZooKeeper) this is, whatever lock it is of; nothing: it
  // does not hold its lock. Rises where the source is raised meanwhile: read once in a tenure, and keep it.
  // Throws InvalidInput for what is not the key of a queue entry.
  [[nodiscard]] virtual std::optional<Token> token_of_key(const std::string& key) = 0;
};

}  // namespace fenceguard
