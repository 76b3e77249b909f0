#pragma once

// Storages as the sidecar and the command line see them: FenceStore keeps fences, ObjectStore keeps objects
// whose writes are judged in the same transaction as they are applied, Storage owns both. Adapters implement
// them.
//
// Every call returns at once and answers through a Done, on a thread of the store's own. Whatever is reported
// as admitted is durable. Faults: implausible, unavailable (nothing was written), unknown (a commit whose end
// was not seen). Calls may be made from any thread. The destructor answers what is still open, then returns.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "guard/error.hpp"
#include "guard/guard.hpp"
#include "guard/token_source.hpp"

namespace fenceguard {

enum class StoreState {
  ready,
  uninitialised,  // no state was found, and no state is not a licence: unavailable until it is initialised
  failed,  // not reached, or not fit to be used: a commit's end was not seen, or the state is damaged; a file
           // is unavailable until it was reopened, a server until it answers again
};

struct StoreStatus {
  StoreState state = StoreState::ready;
  std::string reason;          // a sentence for people: what is wrong and what to do; empty when ready
  std::int64_t floor = 0;      // 0: none
  std::int64_t highest = 0;    // highest token seen in the namespace, floor included
  std::int64_t resources = 0;  // fences with a record of their own
};

struct FenceListing {
  std::string prefix;  // only resources that start with this
  std::string after;   // only resources that sort after this; empty: from the start
  std::size_t limit = 100;
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

  // Sets a fence by hand and leaves a record of who did it when. Lowering one forfeits G1.
  struct Rebase {
    Resource resource;
    Token to;
    std::string by;
  };
  virtual void rebase(Rebase rebase, Done<FenceView> done) = 0;
};

struct Object {
  std::string body;
  std::string content_type;
  std::string etag;             // with its quotes, as in HTTP
  std::int64_t size_bytes = 0;  // of the body, also where the body was not asked for
};

// If-Match and If-None-Match (RFC 9110, section 13.1).
struct Precondition {
  bool any = false;                // '*'
  std::vector<std::string> etags;  // with their quotes; a weak one keeps its W/
};

struct ObjectWrite {
  enum class Kind { put, remove };
  Kind kind = Kind::put;
  std::string path;
  std::string body;
  std::string content_type;
  std::optional<Precondition> if_match;
  std::optional<Precondition> if_none_match;
};

enum class ObjectEnding { created, replaced, removed, not_found, precondition_failed };

struct WriteReport {
  Ruling ruling;
  std::optional<ObjectEnding> ending;  // only if the ruling is admitted
  std::string etag;                    // of the object written
};

struct ReadReport {
  std::optional<Ruling> ruling;  // of the claim, if there was one; the object is only read if it is admitted
  std::optional<Object> object;  // nothing: not found, or refused
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // {judge; apply} as one atomic step.
  virtual void write(Claim claim, ObjectWrite write, Done<WriteReport> done) = 0;

  // A plain read, or with a claim a fenced one, which advances first. Without the body if with_body is false.
  struct Read {
    std::string path;
    std::optional<Claim> claim;
    bool with_body = true;
  };
  virtual void read(Read read, Done<ReadReport> done) = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;
  [[nodiscard]] virtual FenceStore& fences() = 0;
  // The objects that this storage keeps; null if it keeps none of its own.
  [[nodiscard]] virtual ObjectStore* objects() { return nullptr; }
  // The token source that comes with the storage; null if there is none.
  [[nodiscard]] virtual TokenSource* own_source() { return nullptr; }
  // True if missing state is created when the storage is opened for it (StorageOptions::initialise); false
  // where somebody must say so, and a number drawn from the source becomes the floor.
  [[nodiscard]] virtual bool initialises_itself() const noexcept { return false; }
};

// How a storage is opened.
struct StorageOptions {
  enum class Mode {
    guard,    // as its only guard: locked for as long as the process lives
    inspect,  // to look at, beside a running guard; every change is unavailable
  };
  Mode mode = Mode::guard;
  bool initialise = false;  // create missing state with own numbers; see design: 'no state is not a licence'
  std::int64_t jump_max = 0;  // see is_implausible(); 0: no bound
  std::size_t cache_entries = 100'000;
};

// A way to the data that goes round the guard: what a demonstration needs to show the harm, and nothing else
// does.
class UnguardedDoor {
 public:
  virtual ~UnguardedDoor() = default;
  [[nodiscard]] virtual std::optional<std::string> read(const std::string& path) = 0;
  virtual void write(const std::string& path, const std::string& body) = 0;
};

// A client of a storage whose clients write to it themselves, as the demonstration needs one: straight into
// the data, with a claim that is judged in the same step, or without asking any fence.
class DirectDoor : public UnguardedDoor {
 public:
  using UnguardedDoor::write;
  // Makes the place that is written to, and removes it with everything in it. Neither minds a repetition.
  virtual void make_place() = 0;
  virtual void remove_place() = 0;
  // {judge; apply} as one atomic step.
  [[nodiscard]] virtual Ruling write(const Claim& claim, const std::string& path,
                                     const std::string& body) = 0;
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
