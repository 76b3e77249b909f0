#pragma once

// OwnConnection: what Redis keeps for one client on a connection of its own: the keys that it watches, and
// its subscriptions. What is sent there is an OwnCommand or a WatchedTransaction; what Redis says there of
// its own accord goes to the client past the queue of replies.
//
// Not thread-safe.

#include <string_view>
#include <utility>

#include "server/resp/replies/port.hpp"
#include "server/resp/replies/subscriptions.hpp"

namespace fenceguard::resp {

class OwnConnection {
 public:
  explicit OwnConnection(RedisPort& redis) : redis_{redis} {}

  [[nodiscard]] Subscriptions& subscriptions() noexcept { return subscriptions_; }
  [[nodiscard]] const Subscriptions& subscriptions() const noexcept { return subscriptions_; }
  [[nodiscard]] bool is_subscribed() const noexcept { return subscriptions_.is_active(); }
  [[nodiscard]] bool is_watching() const noexcept { return is_watching_; }
  // Of a cluster: that of the keys that are watched.
  [[nodiscard]] int watched_slot() const noexcept { return watched_slot_; }
  [[nodiscard]] bool is_watching_elsewhere(int slot) const {
    return is_watching_ && redis_.is_cluster() && slot != watched_slot_;
  }
  // What was watched is not known any more, so that EXEC answers nil: once.
  [[nodiscard]] bool take_lost_watch() noexcept { return std::exchange(has_lost_watch_, false); }

  // WATCH was answered.
  void begin_watch(int slot) noexcept {
    is_watching_ = true;
    watched_slot_ = slot;
  }
  // By EXEC.
  void end_watch() noexcept { is_watching_ = false; }
  // The connection ends with what is watched on it: a reply is not awaited.
  void drop_watch() {
    has_lost_watch_ = false;
    if (std::exchange(is_watching_, false)) redis_.close(Channel::own);
  }
  // The connection was lost, or is another user's or of another database from now on.
  void lose_watch() noexcept { has_lost_watch_ = std::exchange(is_watching_, false) || has_lost_watch_; }
  void close() {
    redis_.close(Channel::own);
    redis_.close(Channel::spare);
  }
  // As a connection begins.
  void reset() {
    subscriptions_.clear();
    is_watching_ = has_lost_watch_ = false;
    close();
  }

 private:
  RedisPort& redis_;
  Subscriptions subscriptions_;
  int watched_slot_ = -1;
  bool is_watching_ = false;
  bool has_lost_watch_ = false;
};

}  // namespace fenceguard::resp
