#pragma once

// Lanes: the LaneTable with its threads, clock and store: operations come from any thread, are let in at once
// where nothing has to be waited for, and are told later otherwise. Fences of idle resources are kept in a
// cache, the rest in the state.
//
// Thread safety: all calls may be made from any thread.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <variant>

#include "adapters/http/lane_table.hpp"
#include "guard/lane_options.hpp"
#include "guard/storage.hpp"

namespace fenceguard::proxy {

// The answer to an operation that asked to be let in.
using Entry = std::variant<Entered, Refused, Failed>;

class Lanes {
 public:
  // Reads the state's mark, and if the last process left something open closes everything for the settle
  // time; sets the mark before the first write is let in. REQUIRES: options.state offers a LaneState. Throws
  // Unavailable or InvalidInput.
  Lanes(const LaneOptions& options, std::int64_t jump_max, std::size_t cache_entries);
  // Takes the mark away if it set it, and everything is settled. REQUIRES: no operation is in flight or waits
  // that will be reported.
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  [[nodiscard]] Ticket new_ticket() noexcept;

  // Asks to be let in. Answers at once where it can; otherwise nothing, and entered is called once, on any
  // thread, perhaps before this call returns. entered must not block, throw, nor call the lanes. What this
  // call throws was not asked.
  [[nodiscard]] std::optional<Entry> enter(Ask ask, std::function<void(Entry)> entered);

  // The write is over. Answers at once that the client may be told; otherwise (a sequence is being recorded)
  // nothing, and left is called once, on any thread. unknown: REQUIRES that nothing of ours can deliver the
  // request any more: the connection was reset, not closed. REQUIRES, for all: the write was let in, and was
  // not left.
  [[nodiscard]] std::optional<Left> leave(Ticket ticket, Ending ending,
                                          std::function<void(Left)> left) noexcept;

  // What the fence says of a read that was let in, now: see LaneTable. REQUIRES: end_read() was not called.
  [[nodiscard]] Ruling judge_read(Ticket ticket) const;
  // Owed by every read that was let in.
  void end_read(Ticket ticket) noexcept;

  // The client went away while its operation waited; entered is not called any more, unless it is being
  // called. True if it was withdrawn; false if it was answered (then leave() is owed where it was let in).
  [[nodiscard]] bool withdraw(Ticket ticket) noexcept;

  // True if the resource's lane has a fence above the token: whoever has a write in flight under it keeps the
  // next one out, and must not do so for ever. False for an idle lane.
  [[nodiscard]] bool is_overtaken(const Resource& resource, Token token) const;

  // Why no claim on this resource is let in now, and for how long; nothing where it is open. Of no name:
  // whether everything is closed.
  [[nodiscard]] std::optional<Fault> quarantine(std::string_view name) const;

  [[nodiscard]] LaneTable::Figures figures() const;

  // The fences with the lanes in front: advance and revoke drain, rebase is for a stopped guard.
  [[nodiscard]] FenceStore& fences() noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fenceguard::proxy
