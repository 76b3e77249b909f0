#pragma once

// DepthRecord: how many segments of a path name a resource, kept beside the fences of a storage that is
// served by paths. With another depth the same paths have other names, whose fences no claim has raised yet:
// a token that was refused would be admitted.
//
// Thread safety: all calls may be made from any thread. They block, for the start, and throw Unavailable or
// OutcomeUnknown.

#include <cstddef>
#include <cstdint>

namespace fenceguard {

class DepthRecord {
 public:
  virtual ~DepthRecord() = default;

  // The depth that the names were made with so far; where none is kept yet, depth, which is kept from now on.
  [[nodiscard]] virtual std::size_t keep(std::size_t depth) = 0;

  // Keeps depth, and in the same transaction makes the highest token seen the floor, so that no token that
  // was seen is admitted under any name. Answers the floor, which is 0 where there are no fences yet.
  [[nodiscard]] virtual std::int64_t change(std::size_t depth) = 0;
};

}  // namespace fenceguard
