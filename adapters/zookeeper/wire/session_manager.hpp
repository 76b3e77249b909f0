#pragma once

// SessionManager: the one session of a token source: opened when it is first needed, and again once it has
// expired, or was away for so long that it would have: of an ensemble that was restored to an older state it
// never hears that, because the client refuses servers that know less than it has seen. It tells whether the
// session was connected all the time between two moments, because whatever lives by a session is uncertain as
// soon as it is not.
//
// Thread safety: all calls may be made from any thread at once.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>

#include "adapters/zookeeper/session.hpp"
#include "guard/support/clock.hpp"

namespace fenceguard::zookeeper {

// What is known of one session's connection.
struct SessionLife {
  std::atomic<std::uint64_t> breaks{0};  // how often it was no longer connected
  // Since when it is not connected; max: it is, or was a moment ago.
  std::atomic<BootClock::time_point> away_since{BootClock::now()};
};

// A moment at which it was connected.
struct Since {
  std::shared_ptr<const SessionLife> life;
  std::uint64_t breaks = 0;

  // It has been connected ever since.
  [[nodiscard]] bool is_unbroken() const noexcept { return life && life->breaks == breaks; }
};

// The session, connected since then.
struct ConnectionGeneration {
  std::shared_ptr<Session> session;
  Since since;

  [[nodiscard]] bool is_unbroken() const noexcept { return since.is_unbroken(); }
};

// The term of a lease that lives by this session, ttl being asked for: no more than two thirds of what was
// agreed with the ensemble, because a follower tells the leader of a session's life now and then only, and
// the session's own signs of life are a third of its timeout apart: the leader may have begun to count so
// much earlier. REQUIRES: it was connected once.
[[nodiscard]] std::chrono::milliseconds lease_term(const Session& session, std::chrono::milliseconds ttl);

class SessionManager {
 public:
  // What is asked for where the URL does not say: whatever leases come first, and enough for those of the
  // default term (AcquireOptions::ttl).
  static constexpr std::chrono::milliseconds session_timeout_default{15'000};

  // broke is called, on the session's own thread, after each break; it must neither block nor call a session,
  // nor be the last to hold one.
  using Broke = std::function<void(const SessionLife&)>;

  SessionManager(Address address, Broke broke);

  // A stay that begins now. Opens the session if there is none, or none that lives, and waits until it is
  // connected. Throws Unavailable where it does not come to a connection in time, or before stop is
  // requested.
  [[nodiscard]] ConnectionGeneration generation(const std::stop_token& stop = {});

  // What does(stay) answers; does is asked again where the connection broke meanwhile. REQUIRES: asking it
  // once more, after a break, does no harm.
  template <class Does>
  auto healed(const Does& does) {
    bool is_unknown = false;  // whether something asked before took effect
    for (int attempt = 1;; ++attempt) {
      const auto now = generation_after(is_unknown);
      try {
        return does(now);
      } catch (const Error& fault) {
        if (fault.kind() == FaultKind::unknown) is_unknown = true;
        if (fault.kind() == FaultKind::invalid_input || attempt == attempts || now.is_unbroken()) {
          if (is_unknown) throw OutcomeUnknown(fault.what());
          throw;
        }
      }
    }
  }
  static constexpr int attempts = 5;

  // Whether stay() would return at once, or open a new session.
  [[nodiscard]] bool is_ready() const;

  // What was agreed with the ensemble, once there was a stay.
  [[nodiscard]] std::chrono::milliseconds session_timeout() const;

  // Ends the session. No other call is made from then on.
  void close();

 private:
  [[nodiscard]] ConnectionGeneration generation_after(bool is_unknown);
  [[nodiscard]] ConnectionGeneration current();
  [[nodiscard]] std::optional<ConnectionGeneration> usable() const;

  const Address address_;
  const Broke broke_;
  const std::chrono::milliseconds session_timeout_;  // that is asked for
  std::mutex opening_;                               // one thread opens a session; taken before mutex_
  mutable std::mutex mutex_;  // guards what follows; never held while a session is opened or ended
  std::shared_ptr<Session> session_;
  std::shared_ptr<SessionLife> life_;
};

}  // namespace fenceguard::zookeeper
