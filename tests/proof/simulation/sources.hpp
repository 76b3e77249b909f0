#pragma once

// The token sources of the simulation, by which clients block as they do by a real one: the quorum's rules at
// modelled nodes, and the lease queue in front of a counter that falls back. Clocks of both jump.

#include <map>
#include <memory>

#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "guard/token_source.hpp"
#include "tests/proof/simulation/world.hpp"

namespace fenceguard::proof {

class SimulatedSource : public TokenSource {
 public:
  explicit SimulatedSource(World& world) : world_{world} {}
  // The highest number of any grant; of those that were forgotten, too.
  [[nodiscard]] std::int64_t issued() const noexcept { return issued_; }
  // The client whose fiber calls from now on has died: it releases nothing.
  std::function<bool()> is_caller_dead = [] { return false; };

  // Asks again until the time is over. The grant is renewed by no thread: its real time to live is an hour.
  [[nodiscard]] std::optional<Grant> wait_acquire(const Resource& resource, const Holder& holder,
                                                  const AcquireOptions& options) override;
  Release end(const Resource&) override { return Release::not_held; }
  [[nodiscard]] std::optional<LeaseRecord> show(const Resource&) override { return std::nullopt; }
  [[nodiscard]] std::optional<Token> lowest_live() override { return std::nullopt; }

 protected:
  void note_grant(std::int64_t token) { issued_ = std::max(issued_, token); }
  [[nodiscard]] bool happens(int percent) { return !world_.is_calm && world_.random.percent(percent); }

  World& world_;

 private:
  std::int64_t issued_ = 0;
};

[[nodiscard]] std::unique_ptr<SimulatedSource> quorum_source(World& world, std::int64_t first_token);
[[nodiscard]] std::unique_ptr<SimulatedSource> queue_source(World& world, std::int64_t first_token);

}  // namespace fenceguard::proof
