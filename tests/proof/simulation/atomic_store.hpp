#pragma once

// AtomicStore: a storage that keeps fence and data together and judges in its own transaction, as SQLite,
// PostgreSQL, Redis, etcd and ZooKeeper do. A claim comes by a network that loses, delays, and doubles what
// may come twice; the answer goes back by the same.

#include <map>

#include "tests/proof/simulation/door.hpp"
#include "tests/proof/simulation/fences.hpp"
#include "tests/proof/simulation/world.hpp"

namespace fenceguard::proof {

class AtomicStore : public Door {
 public:
  explicit AtomicStore(World& world) : world_{world} {}
  void ask(Question question, std::function<void(Reply)> done) override;
  void raise_floor(std::int64_t floor) override { fences_.raise_floor(floor); }
  [[nodiscard]] std::int64_t highest() const override { return fences_.highest(); }

 private:
  // is_refused: the storage has a reason of its own not to write.
  [[nodiscard]] Reply handle(const Question& question, bool is_refused);
  [[nodiscard]] Reply write(const Question& question, bool is_refused);
  [[nodiscard]] Told read(const Question& question);

  World& world_;
  Fences fences_;
  std::map<std::string, TextId> values_;
};

}  // namespace fenceguard::proof
