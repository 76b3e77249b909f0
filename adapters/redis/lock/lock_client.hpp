#pragma once

// The calls of the token source: each is one script at the server of the resource. With ?fair=1 a lock is
// granted in the order in which it was waited for.
//
// Thread-safe. Faults as in TokenSource.

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters/redis/lock/lock_key.hpp"
#include "adapters/redis/wire/pool.hpp"
#include "guard/source/counter_repair.hpp"
#include "guard/source/lease_lister.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::redis {

struct LockOptions {
  std::string lock_key;  // see LockKey
  bool is_fair = false;
  int replicas = 0;  // that must have a grant, and a renewal
};

class LockClient {
 public:
  using Ms = std::chrono::milliseconds;

  LockClient(const Address& address, const LockOptions& options);

  struct Ask {
    const Resource& resource;
    const Holder& holder;
    Ms ttl;
    bool enters = false;  // another entry, which wants another release; else the same lease, asked for again
    std::string waiter;   // keeps a queue entry for this one; empty: waits nowhere
  };
  // Why the lock was not granted.
  struct Refusal {
    Ms left;                        // of the lease, or until the first waiter is believed dead; -1: for ever
    bool is_ours;                   // its release will be told
    std::string first;              // of look(): the lock is free, and this one's turn
    std::vector<std::string> lost;  // of look(): they have no entry any more, and must ask for one
  };
  struct Answer {
    std::optional<Grant> grant;
    Refusal refusal{};
  };
  [[nodiscard]] Answer ask(const Ask& ask);

  // Keeps the queue entries of waiters for resource, and says how things are.
  [[nodiscard]] Refusal look(const Resource& resource, const std::vector<std::string>& waiters);
  // Gives up an entry; what fails there is left to the time for which entries are kept.
  void leave(const Resource& resource, const std::string& waiter) noexcept;

  [[nodiscard]] Renewal renew(const Claim& claim, Ms ttl);
  Release release(const Claim& claim);
  // Ends the lease that is seen, never its successor.
  Release end(const Resource& resource);
  [[nodiscard]] std::optional<LeaseRecord> show(const Resource& resource);
  // REQUIRES: not under Redis Cluster.
  [[nodiscard]] LeasePage list(const FenceListing& listing);
  // jump_max: how far above what the counter drew; 0: any distance. Throws Implausible beyond.
  void raise(const Resource& resource, Token mark, std::int64_t jump_max);
  // By hand, with a record of who did it. REQUIRES: not under Redis Cluster.
  void raise_far(Token mark, const std::string& done_by);
  Token lower(Token mark, const std::string& done_by);
  [[nodiscard]] Token draw();
  [[nodiscard]] std::optional<Token> lowest_live();

  [[nodiscard]] bool is_cluster() const noexcept { return pool_.is_cluster(); }
  [[nodiscard]] bool is_fair() const noexcept { return options_.is_fair; }
  [[nodiscard]] std::string channel(const Resource& resource) const { return keys_.released(resource); }

  // For how long a queue entry is kept without a look.
  static constexpr Ms place_life{3'000};

 private:
  struct Call {
    std::string doing;  // begins the message of a fault
    const Script& script;
    std::vector<std::string> keys;
    std::vector<std::string> arguments;
    [[nodiscard]] Run run() const {
      return {script, {keys.begin(), keys.end()}, {arguments.begin(), arguments.end()}};
    }
  };

  // Registers the pattern of the lock's key with the call, where it is not our own.
  void add_pattern(Call& call) const;
  // Runs a script that frees the lock if the claim holds it. doing: 'releasing the lock'.
  Release free(const Claim& claim, const std::string& doing, const Script& script);
  [[nodiscard]] std::vector<LeaseRecord> live_of(Client& client, std::span<const Resource> resources) const;
  Reply run(const Call& call);
  [[nodiscard]] Reply accepted(const Call& call, Reply reply) const;
  struct Copied {
    Reply reply;
    std::string shortage;  // too few replicas have it: a sentence
  };
  [[nodiscard]] Copied run_and_copy(const Call& call, Ms ttl);
  Reply run_at_replicas(const Call& call, const Ask& ask);
  [[nodiscard]] int replicas_with(Client& client, const Call& call, Reply& reply, Ms limit) const;
  [[nodiscard]] std::vector<std::string> keys_to_free(const Resource& resource) const;
  [[nodiscard]] std::string counter(const Resource& resource) const;

  Pool pool_;
  const Keys keys_;
  const LockOptions options_;
  const LockKey lock_key_;
};

}  // namespace fenceguard::redis
