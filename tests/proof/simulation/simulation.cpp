#include "tests/proof/simulation/simulation.hpp"

#include <fmt/format.h>

#include "tests/proof/simulation/atomic_store.hpp"
#include "tests/proof/simulation/clients.hpp"
#include "tests/proof/simulation/lane_guard.hpp"
#include "tests/proof/simulation/sources.hpp"

namespace fenceguard::proof {
namespace {

Weather weather_of(Random& random) {
  Weather weather;
  switch (random(6)) {
    case 0:  // fair
      weather.pause = 3;
      break;
    case 1:  // long pauses
      weather.pause = 30;
      weather.pause_ms = 400;
      break;
    case 2:  // the network
      weather.loss = 5;
      weather.doubling = 40;
      weather.late = 30;
      break;
    case 3:  // crashes
      weather.client_crash = 5;
      weather.guard_crash = 2;
      break;
    case 4:  // sources that fall back, clocks that jump
      weather.source_fault = 10;
      weather.clock_jump = 10;
      break;
    default:  // the guard's state is lost, or old
      weather.guard_crash = 2;
      weather.state_loss = 50;
      weather.clock_jump = 5;
      break;
  }
  if (random.percent(30)) weather.unknown = 15;
  return weather;
}

// Where a number changes its size in some language; the last ends at the highest token.
std::int64_t first_token_of(Random& random, bool may_end) {
  constexpr std::int64_t bounds[] = {0, std::int64_t{1} << 31, std::int64_t{1} << 32, std::int64_t{1} << 53};
  const int which = random(may_end ? 6 : 5);
  if (which < 2) return 1;
  if (which == 5) return never - random(30);
  return bounds[which - 1] - random(10);
}

}  // namespace

Simulated simulate(std::uint64_t seed, int operations) {
  Random choice{seed};
  World world{choice.next(), weather_of(choice)};
  const bool has_quorum = choice.percent(50);
  const bool has_lane = choice.percent(60);
  const std::int64_t first_token = first_token_of(choice, !has_quorum);
  world.history.resources = {{"accounts/42", {}, {}, true}, {"accounts/43", {}, {}, true}};
  world.history.bound = jump_max;
  const auto source = has_quorum ? quorum_source(world, first_token) : queue_source(world, first_token);
  Clients* clients = nullptr;
  std::unique_ptr<Door> door;
  const auto drawn = [&] { return std::max({source->issued(), door->highest(), first_token - 1}); };
  if (has_lane) {
    door =
        std::make_unique<LaneGuard>(world, drawn, [&](std::int64_t floor) { clients->record_floor(floor); });
  } else {
    door = std::make_unique<AtomicStore>(world);
  }
  Clients all{world, *source, *door, operations};
  clients = &all;
  if (first_token > 1) {
    door->raise_floor(first_token - 1);
    all.record_floor(first_token - 1);
  }
  all.start(3 + choice(6));
  world.run();
  if (!all.are_over()) throw std::logic_error{fmt::format("seed {}: a client never ended", seed)};
  world.counts.histories = 1;
  put_in_order(world.history);
  return {std::move(world.history), world.counts, std::move(world.source_violation)};
}

}  // namespace fenceguard::proof
