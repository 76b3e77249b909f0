#pragma once

// FenceStore: where a storage keeps its fences, as the sidecar and the command line see it. Adapters
// implement it.
//
// Every call returns at once and is answered once through its Done, on a thread of the store's own: never
// before the call has returned, nor on a thread that calls the store or ends it. So a caller may hold what
// its answer needs, and an answer may call again; it holds up the answers after it.
// Whatever is reported as admitted is durable. Faults: implausible, unavailable (nothing was written),
// unknown (a commit whose end was not seen). Calls may be made from any thread. The destructor has what is
// still open answered, then returns; what an answer calls meanwhile may be refused as unavailable.
// All stores pass tests/conformance/fence_store/fence_store_suite.hpp. BlockingFenceStore makes a store of
// blocking drivers; CompletionOnThread makes the promise good for a store that answers on any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "guard/error.hpp"
#include "guard/guard.hpp"

namespace fenceguard {

enum class StoreState {
  ready,
  uninitialised,  // no state was found: claims are refused as unavailable until the namespace is initialised
  failed,  // not reached, or not fit to be used: a commit's end was not seen, or the state is damaged; a file
           // is unavailable until it was reopened, a server until it answers again
};

// Claims that a storage refused by itself, where it counts them, since it began to.
struct RefusalCount {
  std::string table;    // at whose rows; empty: where the claims were made
  std::string verdict;  // 'stale', 'conflict', 'missing'
  std::int64_t refusals = 0;
};

struct StoreStatus {
  StoreState state = StoreState::ready;
  std::string reason;          // a sentence for people: what is wrong and what to do; if ready, what is amiss
  std::int64_t floor = 0;      // 0: none
  std::int64_t highest = 0;    // highest token seen in the namespace, floor included
  std::int64_t resources = 0;  // fences with a record of their own
  std::vector<RefusalCount> refusals = {};
};

struct FenceListing {
  std::string prefix;  // only resources that start with this
  std::string after;   // only resources that sort after this; empty: from the start
  std::size_t limit = 100;

  [[nodiscard]] bool names(const Resource& resource) const {
    return resource.name().starts_with(prefix) && resource.name() > after;
  }
};

struct FencePage {
  struct Entry {
    Resource resource;
    Fence fence;
  };
  std::vector<Entry> entries;  // sorted by resource, bytewise
  bool has_more = false;       // ask again after the last entry's resource
};

struct Compaction {
  std::int64_t dropped = 0;
  std::int64_t floor = 0;
};

class FenceStore {
 public:
  virtual ~FenceStore() = default;

  // Why nothing that is stored belongs to a resource of this name, as a sentence: a lock on it would protect
  // nothing, and what is asked about it is invalid input. Empty: something may. Never blocks.
  [[nodiscard]] virtual std::string objection_to(const Resource& /*resource*/) const { return {}; }

  // The present state; never blocks.
  [[nodiscard]] virtual StoreStatus status() const = 0;

  // See Guard::advance.
  virtual void advance(Claim claim, Done<Ruling> done) = 0;

  // Closes the fence of resource, so that its present token is refused from now on; a higher token opens it
  // again. lease, the present lease at the source if there is one, is cut off with it even if it has not
  // advanced yet. Answers the fence afterwards; a view without record means that there was nothing to close.
  virtual void revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) = 0;

  // Folds every record with a token lower than lowest_live into the floor. REQUIRES: all tokens of the
  // namespace come from one counter, and lowest_live was TokenSource::lowest_live() at some moment before.
  virtual void compact(Token lowest_live, Done<Compaction> done) = 0;

  virtual void show(Resource resource, Done<FenceView> done) = 0;
  virtual void list(FenceListing listing, Done<FencePage> done) = 0;

  // Creates the state with this floor, or raises the floor of one that exists; never lowers it. Answers the
  // floor afterwards.
  virtual void init(std::int64_t floor, Done<std::int64_t> done) = 0;

  // Sets a fence by hand and records the operator and the time. Lowering one forfeits G1.
  struct Rebase {
    Resource resource;
    Token to;
    std::string by;
  };
  virtual void rebase(Rebase rebase, Done<FenceView> done) = 0;
};

// A FenceStore as a Guard for code that waits. Thread-safe. REQUIRES: the store outlives it.
class StoreGuard : public Guard {
 public:
  explicit StoreGuard(FenceStore& store) : store_{store} {}
  [[nodiscard]] Ruling advance(const Claim& claim) override;

 private:
  FenceStore& store_;
};

}  // namespace fenceguard
