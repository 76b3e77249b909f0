#include "tests/proof/simulation/world.hpp"

#include <algorithm>

namespace fenceguard::proof {

void Counts::add(const Counts& other) {
  for (const auto member :
       {&Counts::histories, &Counts::operations, &Counts::admitted, &Counts::refused, &Counts::unknown,
        &Counts::late_writes, &Counts::takeovers, &Counts::client_crashes, &Counts::guard_crashes,
        &Counts::states_lost, &Counts::source_faults, &Counts::clock_jumps, &Counts::duplicates,
        &Counts::conflicts, &Counts::implausible, &Counts::runs_done, &Counts::raises})
    this->*member += other.*member;
}

void World::after(std::int64_t delay_ms, std::function<void()> run) {
  events_.push({now_ms_ + delay_ms, random.next(), std::move(run)});
}

void World::send(bool may_double, std::function<void()> arrive) {
  if (is_calm) return after(random(3), std::move(arrive));
  for (int copies = may_double && random.percent(weather.doubling) ? 2 : 1; copies > 0; --copies) {
    if (random.percent(weather.loss)) continue;
    after(random(random.percent(weather.late) ? weather.late_ms : 3), arrive);
  }
}

void World::run() {
  while (!events_.empty()) {
    // The queue's top is constant; nothing of it is looked at any more once its work was moved out.
    auto work = std::move(const_cast<Event&>(events_.top()).run);
    now_ms_ = events_.top().at_ms;
    events_.pop();
    work();
  }
}

std::int64_t World::stamp_ns() {
  return last_ns_ = std::max(last_ns_ + 1, now_ms_ * 1'000'000);
}

void World::sleep(std::int64_t ms) {
  (void)await<bool>(ms, [](const std::function<void(bool)>&) {});
}

}  // namespace fenceguard::proof
