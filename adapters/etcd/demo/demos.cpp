#include "adapters/etcd/demo/demos.hpp"

#include "adapters/etcd/demo/stories.hpp"

namespace fenceguard::etcd {

std::vector<Demonstration> demonstrations() {
  return {
      {.name = "etcd-restore",
       .summary = "etcd is restored from a snapshot: its revision goes back, and so do the tokens",
       .opening =
           "Clients A and B share an account that holds 100; A adds 50, B adds 30. The lock is in a real "
           "etcd, and the create revision of its key is the token; the account is in another etcd. The "
           "first one is lost and comes back from a snapshot, while A is at work.",
       .lanes = {"client A", "client B", "locks", "storage"},
       .tell = demos::restore},
  };
}

}  // namespace fenceguard::etcd
