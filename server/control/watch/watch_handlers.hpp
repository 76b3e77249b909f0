#pragma once

// The calls of the control side that show a running guard, and its page. Never a holder's name.
//
// Thread safety: all calls may be made from any thread.

#include <functional>
#include <memory>
#include <string>

#include "guard/store/storage.hpp"
#include "server/control/access_tokens.hpp"
#include "server/control/watch/event_feed.hpp"
#include "server/control/watch/watch.hpp"
#include "server/data/data_service.hpp"

namespace fenceguard {

// What there is to show. All that is referred to outlives the handlers.
struct WatchContext {
  const FenceStore& fences;
  const Watch& watch;
  std::string storage;  // URLs without their passwords
  std::string source;   // empty: none
  bool lists_leases = false;
  // See DataService; lanes without names where there are none.
  std::function<std::int64_t()> in_flight;
  std::function<DataService::LaneFigures()> figures;
  std::function<DataService::LanePage(const FenceListing&, DataService::Lanes)> lanes;
  std::function<std::optional<Fault>()> quarantine;  // of every resource
};

class WatchHandlers {
 public:
  explicit WatchHandlers(WatchContext context) : context_{std::move(context)} {}

  // role: of the caller.
  [[nodiscard]] http::Response status(Role role) const;
  [[nodiscard]] http::Response lanes(const FenceListing& listing) const;
  // A stream that begins behind the event of Last-Event-ID; 503 where too many follow it.
  [[nodiscard]] http::Response events(const http::Request& request, EventFeed::Permission permission) const;
  // The page that shows all this in a browser. needs_token: it asks for one before it calls anything.
  [[nodiscard]] static http::Response console(bool needs_token);

 private:
  const WatchContext context_;
  const EventFeed::Followers followers_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace fenceguard
