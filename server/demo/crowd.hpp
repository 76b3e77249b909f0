#pragma once

// Crowd: many clients, each with a session of its own, that wait for one lock by one of the two recipes, and
// the count of the watches that wake them.
//
// Recipes: https://zookeeper.apache.org/doc/r3.8.0/recipes.html#sc_recipes_Locks, and the one that it warns
// of.
//
// Not thread-safe.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "adapters/zookeeper/session.hpp"
#include "server/demo/servers/zookeeper.hpp"

namespace fenceguard::demo {

class Crowd {
 public:
  // Returns once all of them are connected. REQUIRES: harness and server outlive it.
  Crowd(Harness& harness, const ZooKeeperServer& server, std::size_t clients);
  virtual ~Crowd() = default;
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // All of them ask for the lock; returns once one holds it and each of the others waits by a watch.
  virtual void line_up() = 0;
  // The holder gives it back and asks for it again, behind or beside the others; returns once another holds
  // it and the rest wait again. Answers how many were woken.
  [[nodiscard]] virtual std::size_t hand_over() = 0;

 protected:
  [[nodiscard]] std::size_t size() const noexcept { return sessions_.size(); }
  [[nodiscard]] zookeeper::Session& session(std::size_t client) { return *sessions_.at(client); }
  [[nodiscard]] Harness& harness() noexcept { return harness_; }

  // The handler for a watch of this client.
  [[nodiscard]] zookeeper::Session::Watch watch_of(std::size_t client);
  // Those that were woken since it was asked last, and how many.
  [[nodiscard]] std::vector<std::size_t> take_woken();
  [[nodiscard]] std::size_t woken() const;
  // Returns once every watch that has fired at the server was heard: an answer comes behind the events that
  // were sent before it.
  void hear_all();

 private:
  // Outlives every handler: the sessions end first.
  struct Alarm {
    mutable std::mutex mutex;
    std::vector<std::size_t> woken;
  };
  Harness& harness_;
  Alarm alarm_;
  std::vector<std::unique_ptr<zookeeper::Session>> sessions_;
};

// One ephemeral node, that all clients try to create, and all but one then watch.
[[nodiscard]] std::unique_ptr<Crowd> herd_of(Harness& harness, const ZooKeeperServer& server,
                                             std::size_t clients);
// A sequential node for each, of which each client watches the one before its own.
[[nodiscard]] std::unique_ptr<Crowd> queue_of(Harness& harness, const ZooKeeperServer& server,
                                              std::size_t clients);

}  // namespace fenceguard::demo
