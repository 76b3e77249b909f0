#include "adapters/zookeeper/demo/demos.hpp"

#include "adapters/zookeeper/demo/stories.hpp"

namespace fenceguard::zookeeper {

std::vector<Demonstration> demonstrations() {
  return {
      {.name = "herd",
       .summary = "200 clients wait for one node (ZooKeeper), and all of them wake at every release",
       .opening =
           "200 clients, each with a session of its own with a real ZooKeeper server, want one lock. "
           "First it is one ephemeral node that everybody tries to create and else watches; then each "
           "has a sequential node and watches the one before it, as zookeeper:// does. Who is woken is "
           "counted, by the clients and by the server.",
       .lanes = {"the holder", "the others", "ZooKeeper"},
       .tell = demos::herd},
  };
}

}  // namespace fenceguard::zookeeper
