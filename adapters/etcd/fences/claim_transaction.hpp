#pragma once

// ClaimTransaction: claims judged against what their fences probably are, and the proof in a transaction that
// they are so.
//
// The proof compares the texts of the fences and of the floor with those that were judged, and not their
// revisions: judge() depends on nothing but these values, and a cluster that was restored from a snapshot
// uses its revisions a second time. A fence that was compacted away and made again in between (its revision
// is as it was when it was not there) left a higher floor behind, so the comparison sees it.
//
// Values; not thread-safe.

#include <optional>
#include <span>
#include <vector>

#include "adapters/etcd/client.hpp"
#include "adapters/etcd/fences/fence_cache.hpp"
#include "adapters/etcd/fences/fence_keys.hpp"

namespace fenceguard::etcd {

class ClaimTransaction {
 public:
  enum class Ending {
    done,             // the claims were admitted, and what belongs to them was done
    compares_failed,  // the claims are good; another compare of the transaction failed
    refused,          // by the fences as they were in that transaction
    outdated,         // the claims are good, but what was guessed was not so: judge again
  };

  // Judges by what is remembered. Throws InvalidInput for two claims of one resource, or none.
  ClaimTransaction(const FenceKeys& keys, std::span<const Claim> claims, const FenceCache& cache);

  // What was judged: nothing yet where the floor is not known.
  [[nodiscard]] bool is_known() const noexcept { return !guesses_.empty(); }
  [[nodiscard]] bool is_admitted() const noexcept;
  // True if a fence is put when the transaction is done.
  [[nodiscard]] bool changes() const noexcept;
  // The claims that would raise their fence.
  [[nodiscard]] std::vector<Claim> raising() const;
  // False where a fence is to be raised and the mark is not known yet: see fence_mark.hpp.
  [[nodiscard]] bool has_mark() const { return mark_ || raising().empty(); }

  // Adds the compares, the puts, and the reads of the other case. What is not admitted by the guess cannot be
  // done by the transaction. REQUIRES: has_mark(). It is decided in the cluster's log, also where it puts
  // nothing.
  void add_to(Txn& txn);

  // How the transaction ended; learns from it. Throws Unavailable for a namespace that is not initialised,
  // or a damaged fence.
  [[nodiscard]] Ending read(const TxnAnswer& answer, FenceCache& cache);

  // For a transaction whose end was not told: reads the fences, in the log and without need of space.
  [[nodiscard]] Txn look() const;
  enum class Trace {
    none,  // the fences are as they were judged, and it would have changed one: it was not done, and what was
           // answered finally will not be
    own,   // a fence is as it would have left it, with its sequence: it was done
    other,  // neither
  };
  // What look() found of it; learns from it.
  [[nodiscard]] Trace trace_in(const TxnAnswer& answer, FenceCache& cache) const;

  // After read(), in the order of the claims. Unless they were done, those that are admitted moved nothing.
  [[nodiscard]] const std::vector<Ruling>& rulings() const noexcept { return rulings_; }

 private:
  void judge_all(const std::vector<FenceView>& views);
  void add_reads_to(std::vector<Op>& ops) const;
  // The reads begin at first.
  [[nodiscard]] std::vector<FenceView> views_in(const TxnAnswer& answer, std::size_t first,
                                                FenceCache& cache) const;
  void take_back(const std::vector<FenceView>& views);

  FenceKeys keys_;
  std::vector<Claim> claims_;
  std::vector<FenceView> guesses_;          // empty: not known
  std::optional<std::int64_t> mark_;        // as it was guessed
  std::optional<std::int64_t> mark_after_;  // where a fence is raised
  std::vector<Ruling> rulings_;
  std::size_t first_read_ = 0;  // its place in Txn::otherwise
};

}  // namespace fenceguard::etcd
