#pragma once

// The calls of the token source. What is decided is decided by a transaction that goes through the log of
// raft, never by a read and never by a keep-alive's answer: either it writes, or a branch of it that is not
// taken would, for which reason etcd does not treat it as a read.
//
// Method: the lock of etcd's client library (clientv3/concurrency), with the queue position, the token and
// the holder in one key. The lease of a released grant is kept for the next one: see lease_pool.hpp.
//
// Thread-safe. Faults as in TokenSource.

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "adapters/etcd/client.hpp"
#include "adapters/etcd/lock/lease_pool.hpp"
#include "adapters/etcd/lock/lock_name.hpp"
#include "adapters/etcd/lock/offset.hpp"
#include "adapters/etcd/lock/queue_entry.hpp"
#include "guard/source/lease_lister.hpp"
#include "guard/support/clock.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::etcd {

class LockClient {
 public:
  using Ms = std::chrono::milliseconds;

  // lock_key: see LockName.
  LockClient(const Address& address, const std::string& lock_key);

  // A key of ours in the wait queue of a lock.
  struct QueuePosition {
    Resource resource;
    Holder holder;
    std::string key;
    EtcdLease lease;
    BootClock::time_point asked_at{};
    std::int64_t created = 0;
    // Of raft, in which the lease was last renewed; nothing: it was granted by the log.
    std::optional<std::int64_t> term{};
  };
  // What became of asking for a lock.
  struct QueueStatus {
    std::optional<Grant> grant;
    std::optional<QueuePosition> position;  // without a grant, where the ask waits
    std::string ahead;          // the key that is to be awaited; empty: the lock was free, or this is lost
    std::int64_t revision = 0;  // from which on
    std::int64_t holder_lease = 0;  // of the key that has the lock
  };

  struct Ask {
    const Resource& resource;
    const Holder& holder;
    Ms ttl;
    bool waits = false;  // enqueues where the lock is not free
  };
  [[nodiscard]] QueueStatus ask(const Ask& ask);

  // Whether it is the turn of position. Its lease is renewed by the way. Neither grant nor position: it is
  // lost.
  [[nodiscard]] QueueStatus look(const QueuePosition& position);
  // False: the position is lost, or may be.
  [[nodiscard]] bool keep(const QueuePosition& position);
  // Gives up a queue entry, unless the same holder was granted the lock by it, which another call of its own
  // may have asked for. True: it is gone; otherwise it may be, or is left to its time to live.
  bool leave(const QueuePosition& position) noexcept;

  // Of a lease; at least 1ms.
  [[nodiscard]] Ms remaining(std::int64_t lease);
  // Until ahead may be gone. See Client::wait_for_delete().
  bool wait(const Client::Deletion& deletion) { return client_.wait_for_delete(deletion); }

  // For how long the lease was renewed; nothing: it is lost.
  [[nodiscard]] std::optional<Ms> renew(const Claim& claim, Ms ttl);
  Release release(const Claim& claim);
  Release end(const Resource& resource);
  [[nodiscard]] std::optional<LeaseRecord> show(const Resource& resource);
  [[nodiscard]] std::optional<Token> token_of_key(const std::string& key);
  // Looks at the keys of all locks that start so: more than list_keys_max are Unavailable.
  [[nodiscard]] LeasePage list(const FenceListing& listing);
  static constexpr std::int64_t list_keys_max = 20'000;
  void raise(const Resource& resource, Token mark);
  [[nodiscard]] Token draw();
  [[nodiscard]] Token lowest_live();

 private:
  using Name = std::tuple<std::string, std::int64_t, std::string>;

  [[nodiscard]] std::optional<QueueStatus> ask_under_spare(const Ask& ask);
  [[nodiscard]] QueueStatus ask_under(const Ask& ask, QueuePosition position);
  [[nodiscard]] QueueStatus try_lock(const Ask& ask, QueuePosition& position);
  [[nodiscard]] TxnAnswer take_if_free(const Ask& ask, QueuePosition& position, const Offset::Known& offset);
  [[nodiscard]] QueueStatus enqueue(const Ask& ask, QueuePosition& position);
  [[nodiscard]] TxnAnswer put_key(QueuePosition& position, const Txn& txn);
  [[nodiscard]] TxnAnswer take_lock(const std::string& key, std::int64_t created, const QueuePosition& asking,
                                    const Offset::Known& offset);
  [[nodiscard]] std::optional<Grant> same_holder(const QueuePosition& asking, const QueueEntry& first,
                                                 Ms ttl);
  [[nodiscard]] std::optional<Grant> granted(const QueuePosition& position, Token token, std::int64_t term);
  [[nodiscard]] EtcdLease new_lease(Ms ttl);
  // True: it is gone, and its keys with it. Otherwise, and where it is not our own, it is left to its time to
  // live.
  bool drop_lease(const EtcdLease& lease) noexcept;
  // REQUIRES: our transaction has removed its key.
  void keep_or_drop(const EtcdLease& lease) noexcept;

  // The lease of the one that was last seen to hold the lock, if it is there still.
  [[nodiscard]] std::optional<std::int64_t> lease_of_last_holder(const Ask& ask);
  void remember_holder(const Resource& resource, const QueueEntry& first);

  [[nodiscard]] std::optional<QueuePosition> place_of(const Claim& claim,
                                                      std::optional<Hedging> hedging = {});
  [[nodiscard]] std::optional<Ms> lengthen(const Claim& claim, QueuePosition position, Ms ttl);
  [[nodiscard]] std::vector<Compare> holds(const QueuePosition& position, const Claim& claim) const;
  void remember(const Claim& claim, const QueuePosition& position);
  void forget(const Claim& claim) { (void)extract(claim); }
  // From then on no other call refers to the lease, if it is our own.
  std::optional<QueuePosition> extract(const Claim& claim);
  [[nodiscard]] TxnAnswer remove_key(const QueuePosition& position, const Claim& claim);
  static Name name_of(const Claim& claim);
  // A call of a renewal reaches the last of many endpoints within a quarter of the time to live.
  [[nodiscard]] Hedging hedging_of(Ms ttl) const {
    const auto others = std::max<std::int64_t>(std::ssize(client_.address().endpoints), 3) - 1;
    return {std::max(ttl / 4 / others, Ms{1})};
  }

  [[nodiscard]] TxnAnswer read(std::vector<Op> ops, std::optional<Hedging> hedging = {});
  [[nodiscard]] Op marker() const;
  [[nodiscard]] Op first_of(const std::string& lock) const;
  [[nodiscard]] std::map<Resource, KeyValue> heads_of(const FenceListing& listing);

  Client client_;
  const LockName lock_name_;
  Offset offset_;
  LeasePool pool_;
  std::mutex mutex_;
  // Of grants: an aid to find their keys, no proof; and which leases are our own.
  std::map<Name, QueuePosition> places_;
  std::map<std::string, KeyValue> holders_;  // per resource, as last seen by a refused ask
};

}  // namespace fenceguard::etcd
