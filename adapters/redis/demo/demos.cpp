#include "adapters/redis/demo/demos.hpp"

#include "adapters/redis/demo/stories.hpp"

namespace fenceguard::redis {

std::vector<Demonstration> demonstrations() {
  return {
      {.name = "expire-crash",
       .summary = "a client dies between SETNX and EXPIRE (Redis), and the lock is stuck",
       .opening = "Clients take a lock for a report that they write, in a real redis-server. Client A dies "
                  "right after it took the lock. First it took it in two steps, SETNX and then EXPIRE; then "
                  "in the one step of a token source.",
       .lanes = {"client A", "client B", "Redis"},
       .tell = demos::expire_crash},
      {.name = "foreign-unlock",
       .summary = "a late, unconditional DEL frees another's lock (Redis), and a third client enters",
       .opening = "Clients A, B and C share an account that holds 100, and one lock for it, in a real "
                  "redis-server. A adds 50, B adds 30, C adds 20: in the end it must hold 200. A's lock "
                  "expires while A is at work; A notices nothing, and frees 'its' lock when it is done.",
       .lanes = {"client A", "client B", "client C", "Redis"},
       .tell = demos::foreign_unlock},
      {.name = "failover",
       .summary = "a lagging replica is promoted (Redis), and a plain counter repeats a number",
       .opening = "Clients A and B share an account that holds 100; A adds 50, B adds 30. The lock and a "
                  "counter for tokens are in a redis-server with an asynchronous replica, the account is in "
                  "another redis-server, which does not fail. The replica lags, the master is killed, the "
                  "replica is promoted.",
       .lanes = {"client A", "client B", "locks", "storage"},
       .tell = demos::failover},
      {.name = "redlock-restart",
       .summary = "nodes that restart empty let two clients hold one Redlock",
       .opening = "Clients A and B share an account that holds 100; A adds 50, B adds 30. The lock is a "
                  "Redlock: a key on the majority of five real redis-servers, which keep nothing on disk. "
                  "The account is in a sixth.",
       .lanes = {"client A", "client B", "five nodes", "storage"},
       .tell = demos::redlock_restart},
      {.name = "clock-jump",
       .summary = "the clock of a Redis server jumps: a lock of a minute expires at once",
       .opening = "Clients A and B share an account that holds 100; A adds 50, B adds 30. The lock is in a "
                  "real redis-server whose clock can be set (libfaketime), for a minute; the account is in "
                  "another one. The clock jumps by an hour.",
       .lanes = {"client A", "client B", "locks", "storage"},
       .tell = demos::clock_jump},
  };
}

}  // namespace fenceguard::redis
