#include "adapters/http/demo/demos.hpp"

#include "adapters/http/demo/stories.hpp"

namespace fenceguard::proxy {

std::vector<Demonstration> demonstrations() {
  return {
      {.name = "delayed-packet",
       .summary = "a write is held in the network (HTTP), and lands after the next holder's",
       .opening =
           "Clients A and B share an account that holds 100; A adds 50, B adds 30. The account is in a plain "
           "HTTP storage, which knows nothing of tokens. A's write is held in the network for longer than "
           "its lease lasts. Both times the lock is the guard's; first the clients write round the guard, "
           "then through it.",
       .lanes = {"client A", "client B", "guard", "storage"},
       .tell = demos::delayed_packet,
       .act = demos::act_delayed_packet},
  };
}

}  // namespace fenceguard::proxy
