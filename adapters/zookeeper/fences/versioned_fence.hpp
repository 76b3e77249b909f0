#pragma once

// What fences were seen to be, and how to prove later that they still are: the version of the fence's node,
// and always that of the floor as well. A fence that was compacted and created again has version 0 again, but
// every compaction changes the floor in the same step; so as long as the floor has the version that it had
// when a fence was looked at, that fence was not removed, and its version tells it apart from every other.
//
// read_fences() asks the ensemble; FenceCache remembers. Nothing here decides: the versions are checked by
// the multi that writes.
//
// Thread-safe.

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "adapters/zookeeper/client.hpp"
#include "adapters/zookeeper/fences/highest_mark.hpp"
#include "guard/error.hpp"
#include "guard/judge.hpp"

namespace fenceguard::zookeeper {

struct VersionedFence {
  FenceView view;
  std::int32_t version = 0;  // of the fence's node; without a record it means nothing
  std::int32_t floor_version = 0;
  std::optional<HighestMark> mark;  // of the namespace; nothing if there was none

  // Proves, as the first operations of a multi, that this is still so. Without a record it proves no more
  // than that of the floor: create() proves that there is still none.
  [[nodiscard]] Op check_floor(const FencePaths& paths) const;
};

// The fences of these resources and the floor, all of one moment, with everything in it that was committed
// before the call: a check that goes through the ensemble's log goes before the reads, in the same round
// trip. Throws Unavailable, also where the namespace is not initialised or damaged.
[[nodiscard]] std::vector<VersionedFence> read_fences(const Client::Connection& connection,
                                                      const FencePaths& paths,
                                                      std::span<const Resource> resources);

// What read_fences() begins with. Throws Unavailable if the namespace is not initialised; reads that are
// begun afterwards see everything that was committed before.
void require_initialised(const Client::Connection& connection, const FencePaths& paths);

// Runs function, which writes nothing that a client would miss: an end that was not seen is no more than
// Unavailable.
template <class Function>
auto certain(Function&& function) {
  try {
    return function();
  } catch (const OutcomeUnknown& error) {
    throw Unavailable(error.what());
  }
}

// The names of all resources that have a fence of their own, in the order of their bytes. Throws Unavailable.
[[nodiscard]] std::vector<Resource> read_resources(Session& session, const FencePaths& paths);

// A fence in passing. A damaged one is the trouble of its own resource alone: read_fences() says so.
struct ParsedFence {
  std::optional<Fence> fence;  // nothing where it is gone, or damaged
  bool is_damaged = false;
};

// The fences of resources, many to a round trip. Throws Unavailable.
[[nodiscard]] std::vector<ParsedFence> read_each(Session& session, const FencePaths& paths,
                                                 std::span<const Resource> resources);

// The highest token in the namespace, floor included. Looks at every fence; damaged ones do not count. Throws
// Unavailable.
[[nodiscard]] std::int64_t read_highest(const Client::Connection& connection, const FencePaths& paths);

// A namespace, over a connection.
struct Namespace {
  const Client::Connection& connection;
  const FencePaths& paths;
  Client::Looks& looks;
};

// The mark as it is now, made if there was none. Throws Unavailable.
[[nodiscard]] HighestMark read_mark(const Namespace& in);

// Looks at every fence, and makes or lifts the mark by what it finds. Answers the highest token in the
// namespace. Throws Unavailable.
std::int64_t lift_mark(const Namespace& in);

// Whether claim is plausible by the highest token in the namespace, or by the number that its token source
// would draw now. Where the mark does not say so it takes a write, which changes nothing but the version of
// the source's offset, and a look at every fence, which others may share. Throws Unavailable, also where the
// mark leaves it open and fences were looked at too often lately.
[[nodiscard]] bool is_plausible_to_all(const Namespace& in, const Claim& claim, std::int64_t jump_max);

// Throws Unavailable where the place of the fences is missing: then fences were lost, and a floor that is
// older than they were admits too much. answer: of begin_exists(paths.fences()).
void require_place(const FencePaths& paths, const Answer& answer);

// The floor's text as a number. Throws Unavailable for anything else.
[[nodiscard]] std::int64_t floor_of(const FencePaths& paths, const Answer& answer);

class FenceCache {
 public:
  // Remembers at most so many fences.
  explicit FenceCache(std::size_t entries_max) : entries_max_{entries_max} {}

  // What was seen of the resources under this generation and the newest floor; nothing unless of all of them.
  [[nodiscard]] std::optional<std::vector<VersionedFence>> find(std::uint64_t generation,
                                                                std::span<const Resource> resources);
  // REQUIRES: it was read or written through a connection of this generation.
  void put(std::uint64_t generation, const Resource& resource, const VersionedFence& versioned_fence);
  void forget(const Resource& resource);

  // The highest token that was ever put, floors included; 0 if none.
  [[nodiscard]] std::int64_t highest() const;
  void saw(std::int64_t token);

 private:
  struct Entry {
    Resource resource;
    VersionedFence versioned_fence;
    std::uint64_t generation;
  };
  using Entries = std::list<Entry>;  // the one used last is the first
  struct Hash {
    std::size_t operator()(const Resource& resource) const noexcept {
      return std::hash<std::string>{}(resource.name());
    }
  };

  const std::size_t entries_max_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_map<Resource, Entries::iterator, Hash> index_;
  std::int32_t floor_version_ = 0;
  std::int64_t highest_ = 0;
  std::optional<HighestMark> mark_;  // the newest
  std::uint64_t mark_generation_ = 0;
};

}  // namespace fenceguard::zookeeper
