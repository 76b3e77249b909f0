#pragma once

// Lease: a lock that is held and kept renewed in the background, a third of the time to live at a time. When
// it is lost, or can no longer be known to be held, lost() is signalled, before the source grants the lock to
// another holder.
//
// lost() is a courtesy, not a fence: a paused process gets no signal. What keeps a stale write out is the
// token in claim(), checked by the guard.
//
// Thread safety: lost(), claim() and release() may be called from any thread; moving and destroying not at
// the same time as other calls.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "guard/token_source.hpp"

namespace fenceguard {

// Why a lease was lost, as far as its holder can tell.
struct Loss {
  enum class Kind {
    ended,        // the source says so: it expired there, or was released, ended or revoked
    unreachable,  // the source could not be asked in time
    expired,      // its time was over before it was to be renewed: the process or the machine stood still
  };
  Kind kind = Kind::expired;
  std::string detail{};  // what stood in the way of the last renewal; may be empty
};

// For a holder that must have stopped before the source may grant the lock to another one.
struct LeaseTerms {
  // What it needs for that: the lease counts as lost by so much earlier, and is renewed more often. At most
  // half of the grant's time to live.
  std::chrono::milliseconds time_to_stop{0};
  // Told until when the lease is held if no renewal succeeds from now on: once by the constructor, then by
  // the lease's own thread after each renewal. Must not block.
  std::function<void(BootClock::time_point)> held_until{};
};

class Lease {
 public:
  // Takes over a grant. Callers get leases from TokenSource::acquire().
  Lease(TokenSource& source, Grant grant, LeaseTerms terms = {});
  Lease(Lease&&) noexcept;
  Lease& operator=(Lease&&) noexcept;
  // Releases; what fails there is left to the time to live.
  ~Lease();

  // What accompanies every operation under this lease.
  [[nodiscard]] const Claim& claim() const noexcept;

  // Requested once the lease is lost: expired, ended at the source, not confirmed in time, or held by a
  // connection that broke. Never requested by release(). Callbacks run on the lease's own thread and must not
  // block or destroy the lease.
  [[nodiscard]] std::stop_token lost() const noexcept;
  // Why, once its term is over, which is a moment before lost() is requested; nothing before.
  [[nodiscard]] std::optional<Loss> loss() const;

  // Renews at once, whenever it is due: for a holder that stood still and asks whether it still holds the
  // lock. Does not wait for the answer.
  void renew_now();

  // Stops renewing and frees the lock. not_held: it was lost before. A second call does nothing and says
  // not_held. Throws Unavailable or OutcomeUnknown; the lock is then free at the latest when its time to live
  // is over.
  Release release();

 private:
  class Renewer;
  std::unique_ptr<Renewer> renewer_;
};

}  // namespace fenceguard
