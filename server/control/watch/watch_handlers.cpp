#include "server/control/watch/watch_handlers.hpp"

#include <boost/json/array.hpp>

#include "server/control/json_body.hpp"
#include "server/control/watch/console_page.hpp"
#include "server/data/problem.hpp"

namespace fenceguard {
namespace {

constexpr std::size_t refusals_shown = 10;
constexpr std::size_t quarantines_shown = 100;

boost::json::object lane_body(const DataService::LaneView& lane) {
  boost::json::object body{
      {"resource", lane.resource}, {"waiting", lane.waiting}, {"in_flight", lane.in_flight}};
  if (lane.quarantined.count() > 0) body["quarantined_ms"] = lane.quarantined.count();
  return body;
}

boost::json::array lane_bodies(const DataService::LanePage& page) {
  boost::json::array lanes;
  for (const auto& lane : page.entries) lanes.push_back(lane_body(lane));
  return lanes;
}

boost::json::object verdicts_body(const VerdictWindow::Window& window) {
  boost::json::object counts;
  for (std::size_t i = 0; i < window.counts.size(); ++i)
    counts[Metrics::verdict_words()[i]] = window.counts[i];
  return {{"window_ms", window.length.count()}, {"counts", std::move(counts)}};
}

const char* state_word(StoreState state) {
  switch (state) {
    case StoreState::ready:
      return "ready";
    case StoreState::uninitialised:
      return "uninitialised";
    case StoreState::failed:
      break;
  }
  return "failed";
}

}  // namespace

http::Response WatchHandlers::status(Role role) const {
  const StoreStatus store = context_.fences.status();
  const Watch& watch = context_.watch;
  boost::json::object body{{"version", FENCEGUARD_VERSION},
                           {"now", utc_text(std::chrono::system_clock::now())},
                           {"started_at", utc_text(watch.started_at())},
                           {"uptime_ms", watch.uptime().count()},
                           {"role", role == Role::admin ? "admin" : "lease"},
                           {"storage", context_.storage}};
  body["source"] = nullptr;
  if (!context_.source.empty()) body["source"] = context_.source;
  body["lists_leases"] = context_.lists_leases;
  body["state"] = state_word(store.state);
  if (store.state != StoreState::ready) body["detail"] = store.reason;
  const auto all_quarantined = context_.quarantine();
  if (all_quarantined && store.state == StoreState::ready) {
    body["state"] = "quarantined";
    body["detail"] = all_quarantined->message;
    body["quarantined_ms"] = all_quarantined->retry_after.count();
  }
  body["resources"] = store.resources;
  body["floor"] = std::to_string(store.floor);
  body["highest"] = std::to_string(store.highest);
  body["in_flight"] = context_.in_flight();
  body["verdicts"] = verdicts_body(watch.verdicts());
  const auto figures = context_.figures();
  const auto quarantined =
      context_.lanes(FenceListing{"", "", quarantines_shown}, DataService::Lanes::quarantined);
  body["lanes"] = boost::json::object{{"waiting", figures.waiting},
                                      {"in_flight", figures.in_flight},
                                      {"quarantined", figures.closed},
                                      {"cuts_owed", figures.cuts_owed},
                                      {"in_quarantine", lane_bodies(quarantined)}};
  boost::json::array refusals;
  for (const Event& event : watch.events().last(EventKind::refusal, refusals_shown))
    refusals.push_back(event_body(event, watch.events().run()));
  body["refusals"] = std::move(refusals);
  return json_response(200, body);
}

http::Response WatchHandlers::lanes(const FenceListing& listing) const {
  const auto page = context_.lanes(listing, DataService::Lanes::all);
  boost::json::object body{{"lanes", lane_bodies(page)}};
  add_page_end(body, page.has_more, page.entries.empty() ? "" : page.entries.back().resource);
  return json_response(200, body);
}

http::Response WatchHandlers::events(const http::Request& request, EventFeed::Permission permission) const {
  http::Response response;
  response.fields.add("Content-Type", "text/event-stream");
  response.fields.add("Cache-Control", "no-store");
  if (request.method == "HEAD") return response;
  response.feed = EventFeed::open(context_.watch.events(), followers_,
                                  request.fields.single("Last-Event-ID").value_or(""), std::move(permission));
  if (response.feed) return response;
  return fault_response({FaultKind::unavailable, "32 clients follow the events already. Try again later.",
                         std::chrono::seconds{5}},
                        nullptr);
}

http::Response WatchHandlers::console(bool needs_token) {
  const ConsolePage& page = console_page();
  http::Response response;
  response.fields.add("Content-Type", "text/html; charset=utf-8");
  response.fields.add("Content-Security-Policy", page.policy);
  response.fields.add("Cache-Control", "no-cache");
  response.fields.add("X-Content-Type-Options", "nosniff");
  response.fields.add("Referrer-Policy", "no-referrer");
  response.fields.add("Cross-Origin-Opener-Policy", "same-origin");
  response.fields.add("Cross-Origin-Resource-Policy", "same-origin");
  response.body = needs_token ? page.html_with_tokens : page.html;
  return response;
}

}  // namespace fenceguard
