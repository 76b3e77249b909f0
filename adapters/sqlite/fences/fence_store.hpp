#pragma once

// The embedded storage's fences: judge and record on the committer's thread, so that they are one step with
// the write; refusals and claims that equal their fence are answered from the cache of durable fences without
// it.
//
// Thread-safe.

#include "adapters/sqlite/file/committer.hpp"
#include "adapters/sqlite/file/readers.hpp"
#include "guard/store/fence_cache.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::sqlite {

class EmbeddedFences : public FenceStore {
 public:
  // REQUIRES: all three outlive the store.
  EmbeddedFences(Committer& committer, Readers& readers, FenceCache& cache, std::int64_t jump_max)
      : committer_{committer}, readers_{readers}, cache_{cache}, jump_max_{jump_max} {}

  [[nodiscard]] StoreStatus status() const override { return committer_.status(); }
  void advance(Claim claim, Done<Ruling> done) override;
  void revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) override;
  void compact(Token lowest_live, Done<Compaction> done) override;
  void show(Resource resource, Done<FenceView> done) override;
  void list(FenceListing listing, Done<FencePage> done) override;
  void init(std::int64_t floor, Done<std::int64_t> done) override;
  void rebase(Rebase rebase, Done<FenceView> done) override;

  // What the cache of durable fences alone can say: a refusal, or, if all is asked for, that the claim is the
  // fence's already; else nothing.
  enum class Early { refusals, all };
  [[nodiscard]] std::optional<Ruling> rule_early(const Claim& claim, Early early) const;

 private:
  struct CompactionStep {
    Token lowest_live;
    std::string after;
    Compaction sum;
  };
  void compact_from(CompactionStep step, Done<Compaction> done);

  Committer& committer_;
  Readers& readers_;
  FenceCache& cache_;
  const std::int64_t jump_max_;
};

// The judgement in the open transaction: a ruling, or the fault 'implausible'. Nothing is recorded yet.
[[nodiscard]] Outcome<Ruling> judge_in(FenceTransaction& transaction, const FenceView& view,
                                       const Claim& claim, std::int64_t jump_max);

// A revoke in the open transaction: the fence afterwards.
FenceView revoke_in(FenceTransaction& transaction, const Resource& resource,
                    const std::optional<Claim>& lease);

}  // namespace fenceguard::sqlite
