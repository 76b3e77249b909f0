#pragma once

// What all relays of one sidecar share. Set once; thread-safe from then on.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "adapters/redis/keys.hpp"
#include "adapters/redis/wire/commands.hpp"
#include "server/resp/command/command_rules.hpp"
#include "server/resp/replies/port.hpp"

namespace fenceguard {
class ClaimKeys;
}

namespace fenceguard::resp {

struct RelayOptions {
  redis::Keys keys{"fenceguard:"};
  std::shared_ptr<redis::CommandTable> commands{};
  Permissions permissions{};
  std::int64_t jump_max = 0;
  std::shared_ptr<const std::atomic<bool>>
      may_evict{};  // fences: nothing is judged; null: that is not looked at
  const ClaimKeys* keys_required =
      nullptr;                      // claims must be signed with one of these; null: none needs to be
  Identity identity{};              // of the URL
  int database = 0;                 // likewise
  bool lends_identity = false;      // the URL has credentials: clients do not log in at Redis
  std::string data_password{};      // what they say instead; empty: nothing
  std::size_t pending_max = 4'096;  // requests of one client that are not answered
  std::size_t pending_bytes_max =
      16 * 1024 * 1024;  // likewise, with the answers behind them; one is taken whole
  std::size_t queue_bytes_max = 64 * 1024 * 1024;  // of one client's transaction
};

// What all parts of one client's relay act through; all of it outlives them.
struct RelayContext {
  const RelayOptions& options;
  ClientPort& client;
  RedisPort& redis;
  RelayObserver& observer;
};

}  // namespace fenceguard::resp
