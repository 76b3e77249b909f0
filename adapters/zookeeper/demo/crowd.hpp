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

#include "adapters/zookeeper/demo/server.hpp"
#include "adapters/zookeeper/session.hpp"

namespace fenceguard::zookeeper::demos {

class Crowd {
 public:
  // Returns once all of them are connected. REQUIRES: stage and server outlive it.
  Crowd(Stage& stage, const Server& server, std::size_t clients);
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
  [[nodiscard]] Session& session(std::size_t client) { return *sessions_.at(client); }
  [[nodiscard]] Stage& stage() noexcept { return stage_; }

  // The handler for a watch of this client.
  [[nodiscard]] Session::Watch watch_of(std::size_t client);
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
  Stage& stage_;
  Alarm alarm_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

// One ephemeral node, that everybody tries to create and everybody else watches.
[[nodiscard]] std::unique_ptr<Crowd> herd_of(Stage& stage, const Server& server, std::size_t clients);
// A sequential node for each, of which everybody watches the one before its own.
[[nodiscard]] std::unique_ptr<Crowd> queue_of(Stage& stage, const Server& server, std::size_t clients);

}  // namespace fenceguard::zookeeper::demos
