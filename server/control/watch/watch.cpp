#include "server/control/watch/watch.hpp"

namespace fenceguard {

Watch::Watch(const Metrics& metrics, EventLog& events, Quarantine quarantine)
    : metrics_{metrics}, events_{events}, quarantine_{std::move(quarantine)} {}

Watch::~Watch() {
  stop();
}

void Watch::start() {
  thread_ = std::thread{[this] {
    std::unique_lock lock{mutex_};
    while (!wake_.wait_for(lock, apart, [this] { return is_stopping_; })) {
      try {
        look(BootClock::now());
      } catch (...) {
        // Out of memory: what is missing is a sample, or the end of a quarantine a second later.
      }
    }
  }};
}

void Watch::stop() {
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

std::chrono::milliseconds Watch::uptime() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(BootClock::now() - began_);
}

VerdictWindow::Window Watch::verdicts() const {
  return window_.look(metrics_.verdict_counts(), BootClock::now());
}

void Watch::look(BootClock::time_point now) {
  window_.sample(metrics_.verdict_counts(), now);
  for (const Event& event : events_.after(seen_, EventLog::capacity).events) {
    seen_ = event.number;
    if (event.kind == EventKind::quarantine && resources_.size() < quarantines_max)
      resources_.insert(event.resource);
  }
  for (auto resource = resources_.begin(); resource != resources_.end();) {
    const bool is_over = !quarantine_(*resource == "*" ? std::string_view{} : *resource);
    if (is_over) events_.add({.kind = EventKind::quarantine_end, .resource = *resource});
    resource = is_over ? resources_.erase(resource) : std::next(resource);
  }
}

}  // namespace fenceguard
