#include "server/control/watch/event_feed.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <boost/json/serialize.hpp>

#include "guard/token.hpp"

namespace fenceguard {
namespace {

// What a slow client keeps of ours stays small.
constexpr std::size_t events_at_once = 200;
constexpr std::size_t bytes_at_once = 48 * 1024;

}  // namespace

std::string utc_text(std::chrono::system_clock::time_point time) {
  using std::chrono::milliseconds;
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto rest = std::chrono::duration_cast<milliseconds>(time - whole);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(whole), rest.count());
}

boost::json::object event_body(const Event& event, const std::string& run) {
  boost::json::object body{{"id", fmt::format("{}-{}", run, event.number)},
                           {"at", utc_text(event.at)},
                           {"kind", to_string(event.kind)},
                           {"resource", event.resource}};
  const auto add = [&body](std::string_view name, const std::string& value) {
    if (!value.empty()) body[name] = value;
  };
  add("operation", event.operation);
  add("verdict", event.verdict);
  if (event.token > 0) body["token"] = std::to_string(event.token);
  if (event.highest > 0) body["highest"] = std::to_string(event.highest);
  add("client", event.client);
  add("detail", event.detail);
  if (event.kind == EventKind::quarantine) body["quarantined_ms"] = event.left.count();
  return body;
}

std::shared_ptr<EventFeed> EventFeed::open(const EventLog& log, const Followers& clients,
                                           std::string_view last_seen, Permission permission) {
  std::shared_ptr<EventFeed> feed{new EventFeed{log, clients, last_seen, std::move(permission)}};
  return clients->load() > clients_max ? nullptr : feed;
}

EventFeed::EventFeed(const EventLog& log, Followers clients, std::string_view last_seen,
                     Permission permission)
    : log_{log}, clients_{std::move(clients)}, permission_{std::move(permission)} {
  clients_->fetch_add(1);
  if (last_seen.empty()) return;
  const auto dash = last_seen.rfind('-');
  const auto number = parse_decimal(last_seen.substr(std::min(dash, last_seen.size() - 1) + 1));
  is_of_other_run_ = last_seen.substr(0, dash) != log.run() || !number;
  if (is_of_other_run_) return;
  seen_ = std::min(static_cast<std::uint64_t>(*number), log.last_number());
}

bool EventFeed::read(std::string& out) {
  const auto now = BootClock::now();
  if (now - permitted_at_ >= std::chrono::seconds{1}) {
    if (!permission_()) return false;
    permitted_at_ = now;
  }
  const auto page = log_.after(seen_, events_at_once);
  if (!is_begun_) {
    out += "retry: 1000\n\n";
    if (is_of_other_run_)
      out +=
          "event: gap\ndata: {\"detail\":\"The guard was started anew; what it told before is gone.\"}\n\n";
  }
  // Without an id there is nothing that the client could have missed.
  const bool is_from_start = seen_ == 0 && !is_begun_;
  if (page.missed > 0 && !is_from_start)
    out += fmt::format("event: gap\ndata: {{\"missed\":{}}}\n\n", page.missed);
  for (const Event& event : page.events) {
    out += fmt::format("id: {}-{}\nevent: {}\ndata: {}\n\n", log_.run(), event.number, to_string(event.kind),
                       boost::json::serialize(event_body(event, log_.run())));
    seen_ = event.number;
    if (out.size() > bytes_at_once) break;
  }
  if (out.empty() && now - told_at_ >= heartbeat) out += ": here\n\n";
  if (!out.empty()) told_at_ = now;
  is_begun_ = true;
  return true;
}

}  // namespace fenceguard
