#include "server/control/watch/event_log.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fenceguard {
namespace {

// At most so many bytes, and no half of a character.
void shorten(std::string& text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return;
  while (bytes_max > 0 && (static_cast<unsigned char>(text[bytes_max]) & 0xC0) == 0x80) --bytes_max;
  text = text.substr(0, bytes_max);  // and its memory goes
}

}  // namespace

const char* to_string(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::refusal:
      return "refusal";
    case EventKind::takeover:
      return "takeover";
    case EventKind::revoke:
      return "revoke";
    case EventKind::quarantine:
      return "quarantine";
    case EventKind::quarantine_end:
      return "quarantine_end";
  }
  return "refusal";
}

EventLog::EventLog()
    : run_{fmt::format("{:x}",
                       std::chrono::system_clock::now().time_since_epoch() / std::chrono::microseconds{1})} {
  ring_.reserve(capacity);
}

void EventLog::add(Event event) {
  shorten(event.detail, detail_bytes_max);
  event.at = std::chrono::system_clock::now();
  const std::scoped_lock lock{mutex_};
  event.number = last_ + 1;
  if (ring_.size() < capacity) {
    ring_.push_back(std::move(event));
  } else {
    std::swap(ring_[last_ % capacity], event);  // the old one is freed without the mutex
  }
  ++last_;
}

EventLog::Page EventLog::after(std::uint64_t number, std::size_t limit) const {
  const std::scoped_lock lock{mutex_};
  Page page;
  if (number >= last_) return page;
  const auto first = std::max(number, last_ - ring_.size()) + 1;
  page.missed = first - number - 1;
  const auto end = std::min(last_, first + limit - 1);
  for (auto n = first; n <= end; ++n) page.events.push_back(ring_[(n - 1) % capacity]);
  return page;
}

std::vector<Event> EventLog::last(EventKind kind, std::size_t limit) const {
  const std::scoped_lock lock{mutex_};
  std::vector<Event> found;
  for (auto n = last_; n + ring_.size() > last_ && found.size() < limit; --n) {
    const Event& event = ring_[(n - 1) % capacity];
    if (event.kind == kind) found.push_back(event);
  }
  return found;
}

std::uint64_t EventLog::last_number() const {
  const std::scoped_lock lock{mutex_};
  return last_;
}

}  // namespace fenceguard
