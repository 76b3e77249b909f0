#pragma once

// Door: a guarded storage as a client reaches it, by messages. Two stand behind the one interface: a storage
// that checks in its own transaction (atomic_store.hpp), and one behind the lane (lane_guard.hpp).

#include <functional>
#include <vector>

#include "guard/judge.hpp"
#include "tests/proof/checker/history.hpp"

namespace fenceguard::proof {

struct Question {
  Kind kind = Kind::write;
  std::size_t resource = 0;    // for a plain read and a revoke
  std::vector<Claim> claims;   // two for a write to both resources
  std::vector<TextId> values;  // one for each
};

// What the client is told of one of its claims.
struct Told {
  Answer answer = Answer::unknown;
  std::int64_t highest = -1;
  TextId value = 0;  // read
};
using Reply = std::vector<Told>;

class Door {
 public:
  virtual ~Door() = default;
  // done is called once, later, or never.
  virtual void ask(Question question, std::function<void(Reply)> done) = 0;
  // Raises the floor by hand, at once and durably. The caller records it.
  virtual void raise_floor(std::int64_t floor) = 0;
  [[nodiscard]] virtual std::int64_t highest() const = 0;  // of the namespace
};

[[nodiscard]] inline Answer answer_of(fenceguard::Verdict verdict) {
  return static_cast<Answer>(verdict);
}

constexpr std::int64_t jump_max = std::int64_t{1} << 40;

}  // namespace fenceguard::proof
