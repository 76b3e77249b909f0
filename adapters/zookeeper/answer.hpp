#pragma once

// What a Session is asked and what it answers: operations, codes, and the answer that is still to come.
//
// Values; a Pending belongs to one thread at a time.

#include <chrono>
#include <cstdint>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "guard/error.hpp"

namespace fenceguard::zookeeper {

// What a server answers, where the caller does something about it; everything else is a fault. The words of
// the documentation: ZNONODE, ZNODEEXISTS, ZBADVERSION, ZNOTEMPTY, ZNOCHILDRENFOREPHEMERALS.
enum class Code { ok, no_node, node_exists, bad_version, not_empty, no_children };

struct Stat {
  std::int64_t czxid = 0;
  std::int64_t mzxid = 0;
  std::int64_t ephemeral_owner = 0;  // the session's id; 0: no ephemeral node
  std::int32_t version = 0;
  std::int32_t children = 0;
};

struct Answer {
  Code code = Code::ok;
  Stat stat;                          // of get, set, exists, and of create outside of a multi
  std::string path;                   // create: as it was made, sequence and all
  std::string data;                   // get
  std::vector<std::string> children;  // get_children: names, unsorted
};

inline constexpr std::int32_t any_version = -1;

// ZooKeeper counts each set() of a node, in 32 bits that wrap around; a new node begins at 0.
[[nodiscard]] constexpr std::int32_t version_after(std::int32_t version) noexcept {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(version) + 1);
}

// container: the ensemble removes it some time after its last child has gone. Not within a multi.
enum class Mode { persistent, ephemeral, persistent_sequential, ephemeral_sequential, container };

// One operation of a multi.
struct Op {
  enum class Kind { create, remove, set, check };
  Kind kind = Kind::check;
  std::string path;
  std::string data{};                  // create, set
  std::int32_t version = any_version;  // remove, set, check
  Mode mode = Mode::persistent;        // create
};

[[nodiscard]] Op create(std::string path, std::string data, Mode mode = Mode::persistent);
[[nodiscard]] Op remove(std::string path, std::int32_t version = any_version);
[[nodiscard]] Op set(std::string path, std::string data, std::int32_t version = any_version);
[[nodiscard]] Op check(std::string path, std::int32_t version);

// All of them took effect (is_ok), or none did and failed is the index of the one that could not.
struct MultiAnswer {
  Code code = Code::ok;  // of the one that failed
  std::size_t failed = 0;
  std::vector<Answer> answers;  // one for each operation, if all took effect

  [[nodiscard]] bool is_ok() const noexcept { return code == Code::ok; }
};

// The answer to a call that was begun. Dropping it changes nothing about the call.
template <class T>
class Pending {
 public:
  using Clock = std::chrono::steady_clock;

  // late: the fault where no answer came by the deadline.
  Pending(std::future<Outcome<T>> future, Clock::time_point deadline, Fault late)
      : future_{std::move(future)}, deadline_{deadline}, late_{std::move(late)} {}

  // Waits for the answer. Throws the fault, see above. Once.
  [[nodiscard]] T get() {
    if (future_.wait_until(deadline_) != std::future_status::ready) raise_fault(late_);
    return future_.get().value_or_raise();
  }

 private:
  std::future<Outcome<T>> future_;
  Clock::time_point deadline_;
  Fault late_;
};

}  // namespace fenceguard::zookeeper
