#pragma once

// Node: one server of a quorum as the source sees it: its connections, and a thread of its own that brings it
// back after a fault and does there what no caller waits for.
//
// A node is out from the first call that it leaves without an answer until the thread has connected to it
// again, so that a hanging server costs one time-out and not one per call. Every connection has looked at how
// the server keeps its data before it is used.
//
// Thread-safe.

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "adapters/redis/quorum/message.hpp"
#include "adapters/redis/wire/connection.hpp"
#include "guard/source/boot_condition.hpp"

namespace fenceguard::redis::quorum {

class Node {
 public:
  using Ms = std::chrono::milliseconds;

  struct Options {
    Address address;  // of this server alone
    Ms node_timeout{50};
    bool is_unsafe_persistence_fine = false;
  };

  enum class State { unknown, in, out, unfit };

  // Begins to connect.
  explicit Node(Options options);
  // Tries once more what is still to be done in the background.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& prefix() const noexcept { return options_.address.prefix; }
  [[nodiscard]] State state() const;
  // Why it is out or unfit, as a sentence.
  [[nodiscard]] std::string reason() const;
  // Waits until the first attempt to connect has ended, or the moment has come.
  void wait_until_known(BootClock::time_point until) const;

  // A connection for the caller alone; null while the node is out.
  [[nodiscard]] std::unique_ptr<Connection> take();
  // REQUIRES: nothing that was sent on it is unanswered.
  void give_back(std::unique_ptr<Connection> connection);
  // A call had no answer.
  void put_out(const std::string& reason);

  // Does this in the background, again until it was answered or the moment has come.
  void later(Request request, BootClock::time_point until);

 private:
  struct Task {
    Request request;
    BootClock::time_point until;
  };

  struct Idle {
    std::unique_ptr<Connection> connection;
    BootClock::time_point since;
  };

  void work(const std::stop_token& stop);
  void reconnect();
  // False if it must be done again.
  [[nodiscard]] bool do_now(const Task& task);
  void do_tasks();
  [[nodiscard]] std::unique_ptr<Connection> open(Ms limit) const;

  const Options options_;
  const std::string name_;
  mutable std::mutex mutex_;
  mutable BootCondition changed_;
  State state_ = State::unknown;
  std::string reason_ = "it has not answered yet";
  std::vector<Idle> idle_;
  std::deque<Task> tasks_;
  std::jthread worker_;  // last: it uses all of the above
};

}  // namespace fenceguard::redis::quorum
