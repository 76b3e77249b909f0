#pragma once

// SessionKeeper: the one session of a token source: opened when it is first needed, and again once it has
// expired. It tells whether the session was connected all the time between two moments, because whatever
// lives by a session is uncertain as soon as it is not.
//
// Thread safety: all calls may be made from any thread at once.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>

#include "adapters/zookeeper/session.hpp"

namespace fenceguard::zookeeper {

// What is known of one session's connection.
struct SessionLife {
  std::atomic<std::uint64_t> breaks{0};  // how often it was no longer connected
};

// A moment at which it was connected.
struct Since {
  std::shared_ptr<const SessionLife> life;
  std::uint64_t breaks = 0;

  // It has been connected ever since.
  [[nodiscard]] bool is_unbroken() const noexcept { return life && life->breaks == breaks; }
};

// The session, connected since then.
struct Stay {
  std::shared_ptr<Session> session;
  Since since;

  [[nodiscard]] bool is_unbroken() const noexcept { return since.is_unbroken(); }
};

class SessionKeeper {
 public:
  // broke is called, on the session's own thread, after each break; it must neither block nor call a session,
  // nor be the last to hold one.
  using Broke = std::function<void(const SessionLife&)>;

  SessionKeeper(Address address, Broke broke);

  // A stay that begins now. Opens the session if there is none, or none that lives, and waits until it is
  // connected. ttl: the session's timeout where neither the URL nor an earlier call gives one. Throws
  // Unavailable where it does not come to a connection in time, or before stop is requested.
  [[nodiscard]] Stay stay(std::chrono::milliseconds ttl = session_timeout_default,
                          const std::stop_token& stop = {});

  // What does(stay) answers; does is asked again where the connection broke meanwhile. REQUIRES: asking it
  // once more, after a break, does no harm.
  template <class Does>
  auto healed(const Does& does) {
    bool is_unknown = false;  // whether something asked before took effect
    for (int attempt = 1;; ++attempt) {
      const auto now = stay_after(is_unknown);
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
  [[nodiscard]] Stay stay_after(bool is_unknown);
  void open_if_needed(std::chrono::milliseconds ttl);
  [[nodiscard]] bool connects(const Session& session, const std::stop_token& stop) const;

  const Address address_;
  const Broke broke_;
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<Session> session_;
  std::shared_ptr<SessionLife> life_;
  std::chrono::milliseconds session_timeout_{0};  // 0: not known yet
};

}  // namespace fenceguard::zookeeper
