#pragma once

// TokenSource: a lock service seen as what fenceguard needs of it, leases that carry fencing tokens. Adapters
// implement the small virtual part; acquire() on top of it is what services call.
//
// Three requirements on every implementation: tokens rise strictly per resource from grant to grant; a token
// is stable for its lease (renewing and asking again do not change it); and it is drawn in the same atomic
// step as the grant, durable before it is handed out. Renew and release check token and holder in the same
// step, so that a late heartbeat cannot steal a lease back and a late release cannot free another holder's.
//
// Thread safety: all calls may be made from any thread at once. All calls block. Faults are exceptions:
// Unavailable (nothing happened), OutcomeUnknown (the grant, renewal or release may or may not have
// happened).

#include <chrono>
#include <optional>
#include <stop_token>
#include <variant>

#include "guard/claim.hpp"
#include "guard/support/clock.hpp"

namespace fenceguard {

class Lease;

struct AcquireOptions {
  std::chrono::milliseconds ttl{10'000};
  std::chrono::milliseconds wait{0};  // 0 tries once
  std::optional<Holder> holder{};     // left out: a fresh random one
  std::stop_token stop{};             // gives up waiting when requested
};

// A lock granted, or granted before and still held by the same holder.
struct Grant {
  Claim claim;
  std::chrono::milliseconds ttl{};
  bool is_new = true;  // false: the same holder asked again and has the same token
  // The moment before the request that was granted, from which the term counts. Set by the sender of the
  // request: wait_acquire(), or the caller of try_acquire().
  BootClock::time_point asked_at{};
};

// The lock is held by another holder.
struct LockBusy {
  std::chrono::milliseconds retry_after{};  // asking again before then is useless unless it is released
};

enum class Renewal { renewed, lost };
enum class Release { released, not_held };

// What the source knows of a lease, for people and for revoke.
struct LeaseRecord {
  Claim claim;
  // Nothing: it lives by a connection, or by a process that does not tell.
  std::optional<std::chrono::milliseconds> remaining{};
};

class TokenSource {
 public:
  virtual ~TokenSource() = default;

  // One attempt to take the lock of resource for holder. The same holder again gets the same token and a
  // lease of at least ttl from now.
  [[nodiscard]] virtual std::variant<Grant, LockBusy> try_acquire(const Resource& resource,
                                                                  const Holder& holder,
                                                                  std::chrono::milliseconds ttl) = 0;

  // Extends the lease to ttl from now. lost: it expired, was released or ended, or belongs to another claim.
  [[nodiscard]] virtual Renewal renew(const Claim& claim, std::chrono::milliseconds ttl) = 0;

  // Frees the lock if the claim still holds it.
  virtual Release release(const Claim& claim) = 0;

  // Ends the present lease of resource, whichever client holds it, if there is one. For revoke.
  virtual Release end(const Resource& resource) = 0;

  // The present lease of resource, if there is a live one.
  [[nodiscard]] virtual std::optional<LeaseRecord> show(const Resource& resource) = 0;

  // Lifts the source, so that every token drawn for resource from now on is higher than mark. Excludes draws
  // while it works and never lowers anything. REQUIRES: the caller freshly holds the lock of resource, or is
  // an administrator.
  virtual void raise(const Resource& resource, Token mark) = 0;

  // raise() above highest, what a guard has seen, for a holder that is fresh and yet stale there. Throws
  // Implausible where that is further than raise_max above the token that the source has just granted: then
  // it is more likely that a number was made up than that the source was restored, and numbers that are
  // skipped are used up. REQUIRES: fresh is held.
  void lift(const Claim& fresh, std::int64_t highest);
  static constexpr std::int64_t raise_max = std::int64_t{1} << 40;

  // Draws a number without granting anything: every token granted before is at most this, every later one
  // higher. For 'fence init'.
  [[nodiscard]] virtual Token draw() = 0;

  // If all tokens of the namespace come from one counter: the lowest token that is held, awaited or still to
  // be drawn. Fences below it may be folded into the floor. Nothing if tokens come from several counters.
  [[nodiscard]] virtual std::optional<Token> lowest_live() = 0;

  // True where a lease lives as long as a connection of this process, and not by its time to live alone: it
  // is gone when the process ends.
  [[nodiscard]] virtual bool lives_by_connection() const noexcept { return false; }

  // Requested once the source learns by itself, between two renewals, that the lease of claim is lost or no
  // longer certain, as when its connection breaks. A token that is never requested where it learns nothing.
  [[nodiscard]] virtual std::stop_token lost(const Claim& claim);

  // Takes the lock, waiting up to options.wait for it, and keeps it renewed until the lease is released,
  // destroyed or lost. Nothing if it stayed held by others. REQUIRES: the source outlives the lease. Nothing
  // was advanced at any guard: advance before the first read (Runner does).
  [[nodiscard]] std::optional<Lease> acquire(const Resource& resource, const AcquireOptions& options = {});

  // As acquire(), but the lease is neither renewed nor released: the grant, with its asked_at set, is the
  // caller's to keep alive. For a lease that outlives the process which took it. The default asks again by
  // try_acquire's hint and at least every poll_max.
  [[nodiscard]] virtual std::optional<Grant> wait_acquire(const Resource& resource, const Holder& holder,
                                                          const AcquireOptions& options);

 protected:
  static constexpr std::chrono::milliseconds poll_max{50};
};

// The limits within which a time to live makes sense. Throws InvalidInput outside of them.
void require_sensible_ttl(std::chrono::milliseconds ttl);
inline constexpr std::chrono::milliseconds ttl_min{10};
inline constexpr std::chrono::milliseconds ttl_max{24LL * 3600 * 1000};

}  // namespace fenceguard
