#pragma once

// The embedded storage's objects: fence and object in one transaction.
//
// Thread-safe.

#include "adapters/sqlite/fences/fence_store.hpp"

namespace fenceguard::sqlite {

class EmbeddedObjects : public ObjectStore {
 public:
  // REQUIRES: all outlive the store.
  EmbeddedObjects(EmbeddedFences& fences, Committer& committer, Readers& readers, std::int64_t jump_max)
      : fences_{fences}, committer_{committer}, readers_{readers}, jump_max_{jump_max} {}

  void write(Claim claim, ObjectWrite write, Done<WriteReport> done) override;
  void read(Read read, Done<ReadReport> done) override;

 private:
  // Reads the object in one snapshot with the fence, by which the claim, if there is one, is judged again.
  // ruling: the cache's, which admitted it at the fence's height.
  void look(Read read, std::optional<Ruling> ruling, Done<ReadReport> done);

  EmbeddedFences& fences_;
  Committer& committer_;
  Readers& readers_;
  const std::int64_t jump_max_;
};

}  // namespace fenceguard::sqlite
