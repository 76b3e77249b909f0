#include "server/control/watch/verdict_window.hpp"

namespace fenceguard {

void VerdictWindow::sample(const Metrics::VerdictCounts& counts, BootClock::time_point now) {
  const std::scoped_lock lock{mutex_};
  if (now - samples_.back().at < apart) return;
  samples_.push_back({now, counts});
  while (samples_.size() > 1 && now - samples_[1].at >= length) samples_.pop_front();
}

VerdictWindow::Window VerdictWindow::look(const Metrics::VerdictCounts& counts,
                                          BootClock::time_point now) const {
  const std::scoped_lock lock{mutex_};
  const Sample& base = samples_.front();
  Window window{{}, std::chrono::duration_cast<std::chrono::milliseconds>(now - base.at)};
  for (std::size_t i = 0; i < counts.size(); ++i) window.counts[i] = counts[i] - base.counts[i];
  return window;
}

}  // namespace fenceguard
