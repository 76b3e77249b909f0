#pragma once

// Broadcast: one call's talk with all nodes of a quorum at once: requests go out to each, answers come in as
// they arrive, and a node that has not answered in time is silent.
//
// A node that leaves a request unanswered loses its connection, so that a late answer can never be taken for
// another call's, and is out until it was reached again.
//
// Not thread-safe; any number of exchanges may share the nodes.

#include <poll.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapters/redis/quorum/message.hpp"
#include "adapters/redis/quorum/node.hpp"
#include "adapters/redis/quorum/wire.hpp"

namespace fenceguard::redis::quorum {

using Nodes = std::vector<std::unique_ptr<Node>>;

class Broadcast {
 public:
  struct Event {
    std::size_t node = 0;
    Answer answer;
  };

  // limit: how long each round of answers may take.
  Broadcast(Nodes& nodes, std::chrono::milliseconds limit);
  // Gives the connections back.
  ~Broadcast();
  Broadcast(const Broadcast&) = delete;
  Broadcast& operator=(const Broadcast&) = delete;

  // Sends all; the time for their answers begins. A node that is out is silent at once.
  void send(const Sends& sends);

  // The next answer, or that of a node that is silent; nothing if none is awaited any more. What stays
  // without an answer until the time is over is silent, and its node is put out.
  [[nodiscard]] std::optional<Event> next();

  // True if a request was sent to the node of which it is not known whether it was done.
  [[nodiscard]] bool is_unknown(std::size_t node) const { return links_[node].is_unknown; }
  // What went wrong at the nodes, one after another, for a message.
  [[nodiscard]] std::string troubles() const;

 private:
  struct Awaited {
    std::shared_ptr<const Request> request;
    bool by_hash = true;
  };
  struct Link {
    std::unique_ptr<Connection> connection;
    std::vector<Awaited> awaited;  // in their order; rarely more than one
    bool was_taken = false;
    bool is_unknown = false;
    std::string trouble;
  };

  void send(const Send& send);
  void receive(std::size_t node);
  void give_up(std::size_t node, const std::string& reason);
  [[nodiscard]] bool wait();

  Nodes& nodes_;
  const std::chrono::milliseconds limit_;
  BootClock::time_point until_{};
  std::vector<Link> links_;
  std::deque<Event> events_;
  std::vector<pollfd> descriptors_;  // of the nodes that are waited for, kept for their memory alone
  std::vector<std::size_t> waited_for_;
  std::shared_ptr<const Request> encoded_of_;
  std::string encoded_;  // that request
};

}  // namespace fenceguard::redis::quorum
