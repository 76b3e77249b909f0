#pragma once

// EventFeed: the events as a stream for one client (text/event-stream). It begins with those that are still
// kept, or behind the one that the client saw last; where some in between are forgotten it says so, with
// 'event: gap'. A comment now and then tells the client that the guard is there.
//
// Thread safety: one client's; the log and the places are shared.

#include <atomic>
#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "guard/support/clock.hpp"
#include "server/control/watch/event_log.hpp"
#include "server/http/wire/message.hpp"

namespace fenceguard {

// An event as /v1/events and /v1/status tell it.
[[nodiscard]] boost::json::object event_body(const Event& event, const std::string& run);
// 2026-11-26T01:02:03.456Z
[[nodiscard]] std::string utc_text(std::chrono::system_clock::time_point time);

class EventFeed : public http::Feed {
 public:
  static constexpr std::chrono::seconds heartbeat{10};
  static constexpr int clients_max = 32;

  // How many follow the events of a guard.
  using Followers = std::shared_ptr<std::atomic<int>>;
  // Asked once a second: whether the client may still follow.
  using Permission = std::function<bool()>;

  // last_seen: the id of the last event that the client has; empty: none. Null: clients_max follow already.
  // REQUIRES: log outlives it.
  [[nodiscard]] static std::shared_ptr<EventFeed> open(const EventLog& log, const Followers& clients,
                                                       std::string_view last_seen, Permission permission);
  ~EventFeed() override { clients_->fetch_sub(1); }
  EventFeed(const EventFeed&) = delete;
  EventFeed& operator=(const EventFeed&) = delete;

  [[nodiscard]] bool read(std::string& out) override;

 private:
  EventFeed(const EventLog& log, Followers clients, std::string_view last_seen, Permission permission);

  const EventLog& log_;
  const Followers clients_;
  const Permission permission_;
  std::uint64_t seen_ = 0;
  bool is_of_other_run_ = false;  // what the client saw last
  bool is_begun_ = false;
  BootClock::time_point told_at_{};
  BootClock::time_point permitted_at_{};
};

}  // namespace fenceguard
