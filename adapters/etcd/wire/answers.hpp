#pragma once

// What etcd answers to calls that are no transactions. Values.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fenceguard::etcd {

struct LeaseAnswer {
  std::int64_t id = 0;
  std::chrono::milliseconds ttl{};  // what was granted, or is left; 0 or less: there is no such lease
  std::int64_t term = 0;            // of raft, at the member that answered, before it asked the leader
};

// What a member says of itself and of its cluster; for doctor. One endpoint of address().endpoints.
struct MemberAnswer {
  std::string version;
  std::int64_t leader = 0;  // 0: none
  std::int64_t id = 0;
  std::int64_t cluster = 0;
  std::int64_t revision = 0;
  std::int64_t database_bytes = 0;
  std::vector<std::string> errors;
};

// What is done while the deletion of a key is awaited.
struct Meanwhile {
  std::chrono::milliseconds every;
  std::function<bool()> call;  // false ends the wait
};

}  // namespace fenceguard::etcd
