#pragma once

// TenureProgram: the one program for which leases are held ('serve --hold-for'), as their holder sees it.
// What it reads it reads under the tenure, and it is told of a loss, whatever its driver does.
//
// Thread safety: all calls may be made from any thread.

#include <chrono>
#include <functional>
#include <optional>

#include "guard/support/clock.hpp"
#include "server/net/peer/peer_process.hpp"

namespace fenceguard {

class TenureProgram {
 public:
  virtual ~TenureProgram() = default;

  // What end() may take; the leases are held for so much longer than the program works.
  [[nodiscard]] virtual std::chrono::milliseconds time_to_stop() const = 0;
  // A tenure begins: connections are let in from now on. The program works until that moment at the latest,
  // also where this process stands still; its time being over, overdue is called, which must not block.
  virtual void begin(BootClock::time_point until, std::function<void()> overdue) = 0;
  // The leases were renewed: it may work until then. Does not block; what cannot be passed on is dropped, and
  // the earlier moment counts.
  virtual void work_until(BootClock::time_point moment) = 0;
  // The tenure is over: returns when nothing of the program works any more, or cannot be ended.
  virtual void end() = 0;
  // Likewise, and there will be no other tenure.
  virtual void close() = 0;
  // The connections of this tenure are this process's, and of what descends from it. Nothing: there is no
  // such process now, and any that began in the tenure is let in.
  [[nodiscard]] virtual std::optional<net::Process> root() const = 0;
};

}  // namespace fenceguard
