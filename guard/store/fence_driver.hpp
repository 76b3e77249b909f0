#pragma once

// FenceDriver: the fences of a server, as an adapter implements them: each call blocks until it is answered.
// BlockingFenceStore makes a FenceStore of it, see there for what the calls do.
//
// Thread safety: one thread at a time, but for cancel_older_than(), which any thread may call beside.
// What several drivers share is their own affair.
//
// Calls throw Unavailable where certainly nothing was applied, and OutcomeUnknown where a change was sent and
// its end not seen; the driver then looks for a connection anew with the next call.

#include <chrono>
#include <cstdint>
#include <optional>

#include "guard/store/fence_store.hpp"

namespace fenceguard {

class FenceDriver {
 public:
  virtual ~FenceDriver() = default;

  // Throws Unavailable if the server cannot be reached now.
  virtual void connect() = 0;

  [[nodiscard]] virtual StoreStatus status() = 0;
  // The claim has no sequence.
  [[nodiscard]] virtual Ruling advance(const Claim& claim) = 0;
  [[nodiscard]] virtual FenceView show(const Resource& resource) = 0;
  [[nodiscard]] virtual FencePage list(const FenceListing& listing) = 0;
  [[nodiscard]] virtual FenceView revoke(const Resource& resource, const std::optional<Claim>& lease) = 0;
  [[nodiscard]] virtual FenceView rebase(const FenceStore::Rebase& rebase) = 0;
  [[nodiscard]] virtual std::int64_t init(std::int64_t floor) = 0;
  [[nodiscard]] virtual Compaction compact(Token lowest_live) = 0;

  // Breaks a call off that has taken longer than limit. A driver whose calls have time limits of their own
  // need not.
  virtual void cancel_older_than(std::chrono::milliseconds /*limit*/) {}
};

}  // namespace fenceguard
