#pragma once

// LaneStore: what the LaneTable asks of a state, as calls: each is answered once, perhaps within the call and
// on any thread, with what is pending on the resource beside the fence (nothing, where none is cut off). A
// call that throws is answered as unavailable.
//
// Thread safety: all calls may be made from any thread.

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "guard/store/fence_store.hpp"
#include "guard/store/lane_state.hpp"
#include "server/lane/cut_off.hpp"
#include "server/lane/lane_events.hpp"

namespace fenceguard::proxy {

class LaneStore {
 public:
  using Loaded = PendingFencing::CloseResult;
  using RaiseResult = PendingFencing::RaiseResult;

  LaneStore(FenceStore& fences, LaneState& state, const HolderCutOff& cut_off, std::int64_t jump_max)
      : fences_{fences}, state_{state}, cut_off_{cut_off}, jump_max_{jump_max} {}

  void load(const Resource& resource, Done<Loaded> done) noexcept;
  void raise(const Raise& call, Done<RaiseResult> done) noexcept;
  // finished: its own holder asks for it. REQUIRES, for that: old holders are cut off.
  void close(const Resource& resource, const std::optional<Claim>& lease,
             const std::optional<Claim>& finished, Done<Loaded> done) noexcept;
  void record(const Claim& claim, Done<Ruling> done) noexcept;
  void mark_open(Done<bool> done) noexcept;

  // Has told called with each claim that raised its fence; null: no more, and no call is under way when this
  // returns.
  void watch_raises(std::function<void(const Claim&)> told);

 private:
  void tell_raise(const Claim& claim) noexcept;

  FenceStore& fences_;
  LaneState& state_;
  const HolderCutOff& cut_off_;
  const std::int64_t jump_max_;
  std::mutex raises_mutex_;  // guards told_of_raise_, and is held while that is called
  std::function<void(const Claim&)> told_of_raise_;
};

}  // namespace fenceguard::proxy
