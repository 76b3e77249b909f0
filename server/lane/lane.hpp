#pragma once

// What the LaneTable works on: lanes, the operations on their way through them (admissions), and the book
// that finds both. Data, and the few questions that a lane answers of itself; the rule is the LaneTable's.
//
// Not thread-safe.

#include <array>
#include <boost/intrusive/list.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "guard/store/fence_cache.hpp"
#include "server/lane/lane_events.hpp"

namespace fenceguard::proxy {

struct Lane;
struct Admission;

using QueueHook =
    boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

// One claim of an operation, in the lane of its resource.
struct QueueEntry : QueueHook {
  std::optional<Claim> claim;
  Lane* lane = nullptr;
  Admission* admission = nullptr;
  bool is_ready = false;
  std::size_t asked_at = 0;  // which of the admission's claims it is
};
using Queue = boost::intrusive::list<QueueEntry, boost::intrusive::constant_time_size<false>>;

// One operation on its way through its lanes.
struct Admission {
  enum class Stage { deciding, waiting, in_flight, recording, reading };

  Ticket ticket = 0;
  Kind kind = Kind::write;
  Stage stage = Stage::deciding;
  std::array<QueueEntry, 2>
      entries;  // by the names of their resources: the one order in which lanes are taken
  std::size_t entry_count = 0;
  std::size_t ready_count = 0;  // of them; the operation enters when all are
  bool asked_twice = false;     // one claim that was given as two
  bool withdrawn = false;
  bool has_waited = false;      // and has its room
  bool has_raised = false;      // a fence, durably
  std::size_t held = 0;         // the first so many lanes decide on nothing else meanwhile
  std::size_t store_calls = 0;  // that are not answered
  std::optional<Fault> fault;
  std::optional<RefusedEvent> refusal;

  [[nodiscard]] QueueEntry& asked(std::size_t index) {
    return entries[0].asked_at == index ? entries[0] : entries[1];
  }
  [[nodiscard]] std::span<QueueEntry> all() { return {entries.data(), entry_count}; }
};

// Old holders that are to be cut off before any other enters: which, and how far that is.
struct CutOffState {
  std::int64_t old_token = 0;  // holders up to this one; 0: none. As the store says: see PendingFencing
  bool is_running = false;
  Time again_at{};  // not before, because it failed; 0: it has not

  [[nodiscard]] bool is_pending() const noexcept { return old_token != 0; }
};

// Why a lane is closed to every claim, and until when: see Quarantine.
struct Closure {
  Time until{};
  std::size_t timers = 0;  // that will open it
  struct Unrecorded {
    Claim claim;
    Ticket ticket;
    bool is_asked = false;  // once more, and the store has not answered
  };
  std::optional<Unrecorded> unrecorded;  // took effect, and its sequence is not durable

  [[nodiscard]] bool is_closed(Time now) const noexcept { return now < until || unrecorded; }
};

struct WritesInFlight {
  std::size_t count = 0;
  std::int64_t token = 0;  // of all of them: nothing enters beside another token
  bool has_sequence = false;
};

struct Lane {
  std::string name;
  FenceView view;  // what is durable, if known
  bool is_known = false;
  std::uint64_t generation = 0;  // of the store's fences when it was last asked

  Admission* decider = nullptr;  // the one that is being decided on, if that takes a while
  Queue undecided;               // behind it
  Queue draining;                // equal the fence, and wait until every write with a lower token is over
  Queue ready;                   // wait for their other lane alone
  Queue sequenced;               // equal the fence, and follow each other
  Queue revokes;                 // wait until every write is over

  std::size_t waiting = 0;  // entries that have neither entered nor been answered
  WritesInFlight writes;
  std::size_t reads = 0;  // that have entered and are not over: what they bring is judged by this fence
  CutOffState cut_off;
  Closure closure;
  bool is_touched = false;  // what may enter is to be seen before the call returns

  [[nodiscard]] Verdict verdict(const Claim& claim) const;
  [[nodiscard]] bool is_drained(const Claim& claim) const noexcept {
    return !cut_off.is_pending() && (writes.count == 0 || writes.token >= claim.token.value());
  }
  // Sequences follow each other.
  [[nodiscard]] bool may_enter(const Claim& claim) const noexcept {
    return is_drained(claim) && (!claim.sequence || (!writes.has_sequence && sequenced.empty()));
  }
  [[nodiscard]] bool is_contended() const noexcept { return decider != nullptr || !undecided.empty(); }
  [[nodiscard]] bool is_idle() const noexcept {
    return writes.count == 0 && reads == 0 && waiting == 0 && closure.timers == 0 && decider == nullptr &&
           !closure.unrecorded && !cut_off.is_running && cut_off.again_at == Time{};
  }
  // Takes over what the store says, which may be older than what is known: a fence never falls. True if
  // claims that equal the fence may be refused now, but for their sequence.
  bool adopt(const FenceView& found);
  bool adopt(const Ruling& ruling);
};

// The lanes and admissions that there are. What was dropped is used again.
class LaneBook {
 public:
  [[nodiscard]] Lane* find_lane(std::string_view name) const;
  // Finds it, or makes one whose fence is not known.
  [[nodiscard]] Lane& lane(const std::string& name);
  void drop(Lane& lane);
  template <class Visit>
  void for_each_lane(Visit visit) const {
    for (const auto& [name, lane] : lanes_) visit(*lane);
  }
  [[nodiscard]] std::size_t lane_count() const noexcept { return lanes_.size(); }

  [[nodiscard]] Admission* find_admission(Ticket ticket) const;
  // With its claims in entries of their lanes; queued nowhere.
  [[nodiscard]] Admission& make_admission(Ask&& ask);
  // Of one claim, in lane.
  [[nodiscard]] Admission& make_admission(Ticket ticket, Kind kind, const Claim& claim, Lane& lane);
  void drop(Admission& admission);

 private:
  Admission& keep(std::unique_ptr<Admission> made);

  struct ByName {
    using is_avalanching = void;  // std::hash of a string mixes all bits
    std::size_t operator()(std::string_view name) const noexcept {
      return std::hash<std::string_view>{}(name);
    }
  };
  boost::unordered_flat_map<std::string_view, std::unique_ptr<Lane>, ByName> lanes_;
  boost::unordered_flat_map<Ticket, std::unique_ptr<Admission>> admissions_;
  std::vector<std::unique_ptr<Lane>> spare_lanes_;
  std::vector<std::unique_ptr<Admission>> spare_admissions_;
};

// Which fences are known without asking the store. A lane keeps its own for as long as it exists; those of
// idle resources are cached. All of them may be forgotten at once: what the store was asked before that may
// be too low, and is not taken for known.
class KnownFences {
 public:
  // At most so many fences of idle resources are cached; the others are looked up.
  explicit KnownFences(std::size_t cached_max) : cache_{cached_max} {}

  // True if the lane has its resource's fence, now perhaps from the cache.
  [[nodiscard]] bool find(Lane& lane, const Resource& resource);
  // How a claim on a resource without a lane would be judged; nothing if its fence is not cached. The floor
  // was below a cached fence, and rises by what makes everything forgotten.
  [[nodiscard]] std::optional<FenceCache::Answer> judge(const Claim& claim) const {
    return cache_.ask(claim, 0);
  }

  // The store is asked about the lane's fence, or to change it.
  void asked(Lane& lane) const noexcept { lane.generation = generation_; }
  // The store answered that this is durable. True as Lane::adopt().
  [[nodiscard]] bool adopt(Lane& lane, const Resource& resource, const FenceView& found);
  // Caches the lane's fence, or takes it out where it may not stand there.
  void cache(const Lane& lane, const Resource& resource);
  // The store may hold more than what is known here.
  void forget(Lane& lane);
  // Of every resource without a lane; the lanes' own are the caller's.
  void forget_all();

 private:
  FenceCache cache_;  // what is durable
  std::uint64_t generation_ = 0;
};

}  // namespace fenceguard::proxy
