#pragma once

// What the LaneTable is made of: lanes, the passages through them, and the book that finds both. Data, and
// the few questions that a lane answers of itself; the rule is the LaneTable's.
//
// Not thread-safe.

#include <array>
#include <boost/intrusive/list.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

  void clear();
  [[nodiscard]] QueueEntry& asked(std::size_t index) {
    return entries[0].asked_at == index ? entries[0] : entries[1];
  }
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
  std::size_t in_flight = 0;
  std::int64_t in_flight_token = 0;  // of all of them: nothing enters beside another token
  bool has_sequence_in_flight = false;
  std::size_t reads = 0;  // that have entered and are not over: what they bring is judged by this fence

  std::int64_t pending_fencing =
      0;                        // holders up to this token are to be cut off before any other enters; 0: none
  bool is_cutting_off = false;  // they are being cut off
  Time cut_off_again_at{};      // not before, because it failed; 0: it has not

  Time closed_until{};
  std::size_t timers = 0;  // that will look at it
  struct Unrecorded {
    Claim claim;
    Ticket ticket;
    bool is_asked = false;  // once more, and the store has not answered
  };
  std::optional<Unrecorded> unrecorded;  // took effect, and its sequence is not durable
  bool is_touched = false;               // is to be looked at before the call returns

  void clear();
  [[nodiscard]] Verdict verdict(const Claim& claim) const;
  [[nodiscard]] bool is_drained(const Claim& claim) const noexcept {
    return pending_fencing == 0 && (in_flight == 0 || in_flight_token >= claim.token.value());
  }
  [[nodiscard]] bool is_contended() const noexcept { return decider != nullptr || !undecided.empty(); }
  [[nodiscard]] bool is_idle() const noexcept {
    return in_flight == 0 && reads == 0 && waiting == 0 && timers == 0 && decider == nullptr && !unrecorded &&
           !is_cutting_off && cut_off_again_at == Time{};
  }
  // Takes over what the store says, which may be older than what is known: a fence never falls. True if
  // claims that equal the fence may be refused now, but for their sequence.
  bool adopt(const FenceView& found);
  bool adopt(const Ruling& ruling);
};

// The lanes and passages that there are. What was dropped is used again.
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

}  // namespace fenceguard::proxy
