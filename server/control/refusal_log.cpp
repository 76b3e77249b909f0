#include "server/control/refusal_log.hpp"

#include <spdlog/spdlog.h>

#include <functional>

#include "server/data/trace_id.hpp"

namespace fenceguard {
namespace {

// What a line ends with where its request is part of a trace.
std::string trace_of(const Requester& requester) {
  const auto id = requester.trace_id();
  return id.empty() ? std::string{} : " trace_id=" + std::string{id};
}

}  // namespace

std::string_view Requester::trace_id() const noexcept {
  return fields_ != nullptr ? trace_id_of(*fields_) : trace_id_;
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + '"';
}

RefusalLog::Allowance RefusalLog::take(std::string_view resource, BootClock::time_point now) {
  const auto second = std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  const std::scoped_lock lock{mutex_};
  Slot& slot = slots_[std::hash<std::string_view>{}(resource) % slots_.size()];
  if (slot.second == second) {
    ++slot.suppressed;
    return {};
  }
  slot.second = second;
  return {true, std::exchange(slot.suppressed, 0)};
}

// What is told has happened already: where there is no memory for the event, it is missing.
template <class Make>
void RefusalLog::record(const Make& make) noexcept {
  try {
    events_.add(make());
  } catch (...) {
    // As said.
  }
}

void RefusalLog::ruled(std::string_view operation, const Claim& claim, const Ruling& ruling,
                       const Requester& requester) {
  const bool is_refusal = ruling.verdict == Verdict::stale || ruling.verdict == Verdict::conflict;
  // What changed without a sequence is the token.
  const bool is_takeover = ruling.raised || (ruling.changed && !claim.sequence);
  if (is_refusal || is_takeover) {
    record([&] {
      return Event{.kind = is_refusal ? EventKind::refusal : EventKind::takeover,
                   .resource = claim.resource.name(),
                   .operation = std::string{operation},
                   .verdict = to_string(ruling.verdict),
                   .token = claim.token.value(),
                   .highest = ruling.highest,
                   .client = std::string{requester.client()}};
    });
  }
  const auto level = ruling.verdict == Verdict::conflict ? spdlog::level::warn
                     : is_refusal                        ? spdlog::level::info
                                                         : spdlog::level::debug;
  if (!spdlog::should_log(level)) return;
  Allowance allowance{true, 0};
  if (is_refusal) allowance = take(claim.resource.name(), BootClock::now());
  if (!allowance.granted) return;
  std::string_view event = is_refusal ? "refused" : "ruled";
  if (ruling.verdict == Verdict::conflict) event = "source issued one number twice";
  spdlog::log(level,
              "event={} operation={} verdict={} resource={} token={} highest={} client={} suppressed={}{}",
              fenceguard::quoted(event), operation, to_string(ruling.verdict),
              fenceguard::quoted(claim.resource.name()), claim.token.value(), ruling.highest,
              requester.client(), allowance.suppressed, trace_of(requester));
}

void RefusalLog::not_signed(std::string_view operation, const Claim& claim, const Requester& requester) {
  record([&] {
    return Event{.resource = claim.resource.name(),
                 .operation = std::string{operation},
                 .verdict = "unsigned",
                 .token = claim.token.value(),
                 .client = std::string{requester.client()}};
  });
  if (!spdlog::should_log(spdlog::level::warn)) return;
  const auto allowance = take(claim.resource.name(), BootClock::now());
  if (!allowance.granted) return;
  spdlog::warn("event=refused operation={} verdict=unsigned resource={} token={} client={} suppressed={}{}",
               operation, fenceguard::quoted(claim.resource.name()), claim.token.value(), requester.client(),
               allowance.suppressed, trace_of(requester));
}

void RefusalLog::missing(std::string_view operation, const Resource& resource, const Requester& requester) {
  record([&] {
    return Event{.resource = resource.name(),
                 .operation = std::string{operation},
                 .verdict = "missing",
                 .client = std::string{requester.client()}};
  });
  if (!spdlog::should_log(spdlog::level::info)) return;
  const auto allowance = take(resource.name(), BootClock::now());
  if (!allowance.granted) return;
  spdlog::info("event=refused operation={} verdict=missing resource={} client={} suppressed={}{}", operation,
               fenceguard::quoted(resource.name()), requester.client(), allowance.suppressed,
               trace_of(requester));
}

void RefusalLog::program_refused(const Resource& resource, std::string_view why, const Requester& requester) {
  if (!spdlog::should_log(spdlog::level::warn)) return;
  const auto allowance = take(resource.name(), BootClock::now());
  if (!allowance.granted) return;
  spdlog::warn("event=\"connection refused\" resource={} reason={} client={} suppressed={}",
               fenceguard::quoted(resource.name()), fenceguard::quoted(why), requester.client(),
               allowance.suppressed);
}

void RefusalLog::taken_over(const Claim& claim) {
  record([&] {
    return Event{.kind = EventKind::takeover,
                 .resource = claim.resource.name(),
                 .verdict = to_string(Verdict::admitted),
                 .token = claim.token.value(),
                 .highest = claim.token.value()};
  });
}

void RefusalLog::revoked(const Resource& resource, std::int64_t token, bool is_lease_ended,
                         std::string_view client) {
  record([&] {
    return Event{.kind = EventKind::revoke,
                 .resource = resource.name(),
                 .token = token,
                 .highest = token,
                 .client = std::string{client}};
  });
  spdlog::warn("event=revoked resource={} lease_ended={}", fenceguard::quoted(resource.name()),
               is_lease_ended);
}

void RefusalLog::quarantined(std::string_view resource, const Fault& why) {
  record([&] {
    return Event{.kind = EventKind::quarantine,
                 .resource = std::string{resource},
                 .detail = why.message,
                 .left = why.retry_after};
  });
  if (!spdlog::should_log(spdlog::level::warn)) return;
  spdlog::warn("event=quarantined resource={} reason={} left_ms={}", fenceguard::quoted(resource),
               fenceguard::quoted(why.message), why.retry_after.count());
}

void RefusalLog::failed(std::string_view operation, const Claim& claim, const Fault& fault,
                        const Requester& requester) {
  write_failure({.resource = claim.resource.name(),
                 .operation = std::string{operation},
                 .token = claim.token.value(),
                 .client = std::string{requester.client()}},
                fault, requester);
}

void RefusalLog::failed(std::string_view operation, const Resource& resource, const Fault& fault,
                        const Requester& requester) {
  write_failure({.resource = resource.name(),
                 .operation = std::string{operation},
                 .client = std::string{requester.client()}},
                fault, requester);
}

void RefusalLog::write_failure(Event event, const Fault& fault, const Requester& requester) {
  event.verdict = to_string(fault.kind);
  event.detail = fault.message;
  if (fault.kind != FaultKind::invalid_input) record([&] { return event; });
  const auto level = fault.kind == FaultKind::unknown ? spdlog::level::err : spdlog::level::warn;
  if (!spdlog::should_log(level)) return;
  const auto allowance = take(event.resource, BootClock::now());
  if (!allowance.granted) return;
  spdlog::log(level,
              "event=\"not judged\" operation={} verdict={} resource={} reason={} client={} suppressed={}{}",
              event.operation, event.verdict, fenceguard::quoted(event.resource),
              fenceguard::quoted(fault.message), event.client, allowance.suppressed, trace_of(requester));
}

}  // namespace fenceguard
