#pragma once

// The fence in a service's own etcd: judged here, and proved, recorded and written in one transaction.
//
//   etcd::Client client{"etcd://h1,h2,h3"};
//   etcd::Guard guard{client};
//   auto written = guard.write(lease->claim(), {etcd::put("config/x", "v")});
//
// Any keys may be written under a claim but those under PREFIX/, which are fenceguard's own; which keys
// belong to which resource is an agreement of the writers. A namespace must have been initialised
// ('fenceguard fence init'). Every answer was decided by a transaction in the cluster's log: what a guard
// remembers only saves round trips. One when it remembers right, one more when it does not.
//
// Faults of every call: InvalidInput (nothing was sent), Implausible (no fence moved), Unavailable (nothing
// was written), OutcomeUnknown: the transaction was sent and its end not seen. Such a one is never repeated
// here; with a sequence the caller may repeat it, and it takes effect at most once. A call that others keep
// in the way of ends as Unavailable after the client's time-out.
//
// Thread safety: all calls may be made from any thread at once.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "adapters/etcd/client.hpp"
#include "guard/guard.hpp"

namespace fenceguard::etcd {

class ClaimTransaction;
class FenceKeys;
class FenceCache;
class OutOfSpace;

struct WriteResult {
  Ruling ruling;
  // False: the claim is good, and the caller's own compares failed. None of its operations was done, the
  // sequence is free, and an advanced fence stays.
  bool compares_held = true;
  std::vector<OpAnswer> answers;  // of the operations, in their order; none unless they were done

  [[nodiscard]] bool is_done() const noexcept { return ruling.verdict == Verdict::admitted && compares_held; }
};

// Of several claims: all or none.
struct WriteAllResult {
  std::vector<Ruling> rulings;  // in the order of the claims
  bool is_done = false;
  bool compares_held = true;  // as above
  std::vector<OpAnswer> answers;
};

// A claim in a transaction of the caller's own, between Guard::admit_in() and Guard::ruling_of().
class Admission {
 public:
  enum class Ending {
    done,             // admitted, and the caller's transaction was done
    compares_failed,  // the claim is good, and the caller's own compares failed: nothing was done
    refused,          // as the ruling says: nothing was done
    again,            // the claim is good, and the guard remembered its fence wrongly: nothing was done. Make
                      // the transaction again from the start
  };
  struct Answer {
    Ending ending;
    Ruling ruling;
  };

 private:
  friend class Guard;
  explicit Admission(std::shared_ptr<ClaimTransaction> check) : check_{std::move(check)} {}
  std::shared_ptr<ClaimTransaction> check_;
};

class Guard : public fenceguard::Guard {
 public:
  // What one transaction of etcd takes of each, compares and operations (--max-txn-ops), ours included.
  static constexpr std::size_t ops_max = 128;
  static constexpr std::size_t remembered_fences = 10'000;

  // REQUIRES: the client outlives the guard. jump_max: see is_implausible(); 0: no bound.
  explicit Guard(Client& client, std::int64_t jump_max = 0, std::size_t fences_max = remembered_fences);
  ~Guard() override;
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  [[nodiscard]] Ruling advance(const Claim& claim) override;

  // {judge; apply} as one transaction, under further compares of the caller's own if there are any.
  // InvalidInput for a key of ours, for no operation, and for more than ops_max or Client::txn_bytes_max.
  [[nodiscard]] WriteResult write(const Claim& claim, std::vector<Op> ops,
                                  std::vector<Compare> compares = {});

  // The same under several claims of different resources: if one of them is not admitted nothing is written,
  // and no fence moves.
  [[nodiscard]] WriteAllResult write_all(std::span<const Claim> claims, std::vector<Op> ops,
                                         std::vector<Compare> compares = {});

  // A fenced read: advances, then reads, in one step. InvalidInput for an operation that writes. Where the
  // fence need not move, a lost answer is no more than Unavailable.
  [[nodiscard]] WriteResult read(const Claim& claim, std::vector<Op> ops);

  // For a transaction of the caller's own: adds what makes it fail unless claim is admitted, and what records
  // the claim. Sends nothing (but to look, where the claim looks implausible, or the first that raises a
  // fence). Call it once for a transaction, after all else was added, send that by client.txn(), and ask
  // ruling_of(). The answers of the caller's operations are where it put them. Both stand or fall together:
  // where the caller's compares fail, the fence does not move either. InvalidInput as of write(), and for an
  // otherwise-operation that writes, because it would be done for a claim that is refused.
  //
  //   for (;;) {
  //     etcd::Txn txn{.compare = {…}, .then = {etcd::put("config/x", "v")}};
  //     const auto admission = guard.admit_in(lease->claim(), txn);
  //     const auto answer = guard.ruling_of(admission, client.txn(txn));
  //     if (answer.ending != etcd::Admission::Ending::again) return answer;
  //   }
  [[nodiscard]] Admission admit_in(const Claim& claim, Txn& txn);
  [[nodiscard]] Admission::Answer ruling_of(const Admission& admission, const TxnAnswer& answer);

 private:
  [[nodiscard]] WriteAllResult apply(std::span<const Claim> claims, const Txn& wanted);
  [[nodiscard]] std::vector<Ruling> advance_all(std::span<const Claim> claims);
  [[nodiscard]] bool is_done_all_the_same(const ClaimTransaction& sent, const Txn& wanted,
                                          const OutOfSpace& error);
  void require_free(const Txn& txn, std::size_t claims) const;
  void require_plausible(const ClaimTransaction& check);
  [[nodiscard]] TxnAnswer send(const Txn& txn, bool may_change);

  Client& client_;
  const std::int64_t jump_max_;
  const std::unique_ptr<const FenceKeys> keys_;
  const std::unique_ptr<FenceCache> cache_;
};

}  // namespace fenceguard::etcd
