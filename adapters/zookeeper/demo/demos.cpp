#include "adapters/zookeeper/demo/demos.hpp"

#include "adapters/zookeeper/demo/stories.hpp"

namespace fenceguard::zookeeper {

std::vector<Demonstration> demonstrations() {
  return {
      {.name = "session-expiry",
       .summary = "a client is stopped past its session (ZooKeeper), and wakes up believing",
       .opening =
           "Clients A and B share an account that holds 100; A adds 50, B adds 30. Lock and account are "
           "in a real ZooKeeper server: the lock is the first of the ephemeral sequential nodes. A is a "
           "process of its own. It is stopped until its session has expired.",
       .lanes = {"client A", "client B", "ZooKeeper"},
       .tell = demos::session_expiry,
       .act = demos::act_session_expiry},
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
