#pragma once

// Doors: ways to the data of a storage as the demonstration needs them.

#include <optional>
#include <string>

#include "guard/judge.hpp"

namespace fenceguard {

// A way to the data that goes round the guard: what a demonstration needs to show the harm, and nothing else
// does.
class UnguardedDoor {
 public:
  virtual ~UnguardedDoor() = default;
  [[nodiscard]] virtual std::optional<std::string> read(const std::string& path) = 0;
  virtual void write(const std::string& path, const std::string& body) = 0;
};

// A client of a storage whose clients write to it themselves, as the demonstration needs one: straight into
// the data, with a claim that is judged in the same step, or without asking any fence.
class DirectDoor : public UnguardedDoor {
 public:
  using UnguardedDoor::write;
  // Makes the place that is written to, and removes it with everything in it. Neither minds a repetition.
  virtual void make_place() = 0;
  virtual void remove_place() = 0;
  // {judge; apply} as one atomic step.
  [[nodiscard]] virtual Ruling write(const Claim& claim, const std::string& path,
                                     const std::string& body) = 0;
};

}  // namespace fenceguard
