#pragma once

// The depth by which resources are named, in the embedded storage: it goes through the committer, so that it
// changes in one transaction with the floor.
//
// Thread-safe.

#include "adapters/sqlite/file/committer.hpp"
#include "guard/store/resource_depth.hpp"

namespace fenceguard::sqlite {

class EmbeddedDepthRecord : public DepthRecord {
 public:
  // REQUIRES: the committer outlives it.
  explicit EmbeddedDepthRecord(Committer& committer) : committer_{committer} {}

  [[nodiscard]] std::size_t keep(std::size_t depth) override;
  [[nodiscard]] std::int64_t change(std::size_t depth) override;

 private:
  Committer& committer_;
};

}  // namespace fenceguard::sqlite
