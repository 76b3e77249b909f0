#pragma once

// RefusalLog: a structured line for a refusal, at most one a second per resource, however many there are;
// what was left out is counted in the next line. Admissions are written at debug only. Never a holder's name.
// Refusals, take-overs, revokes and quarantines are kept as events as well, each of them.
//
// Memory is fixed: resources share a table of slots by their hash, so two of them may share one allowance.
//
// Thread safety: all calls may be made from any thread.

#include <array>
#include <concepts>
#include <cstdint>
#include <iomanip>
#include <mutex>
#include <string_view>

#include "guard/error.hpp"
#include "guard/judge.hpp"
#include "guard/support/clock.hpp"
#include "server/control/watch/event_log.hpp"
#include "server/http/wire/message.hpp"

namespace fenceguard {

// Whose request a line is about. Its fields are looked at only where a line is written.
class Requester {
 public:
  // client: see http::Request::client. trace_id: see trace_id_of(); empty: none.
  template <std::convertible_to<std::string_view> Client>
  Requester(const Client& client, std::string_view trace_id = {})  // NOLINT(*-explicit-*): most have no trace
      : client_{client}, trace_id_{trace_id} {}
  Requester(std::string_view client, const http::Fields& fields) : client_{client}, fields_{&fields} {}

  [[nodiscard]] std::string_view client() const noexcept { return client_; }
  [[nodiscard]] std::string_view trace_id() const noexcept;

 private:
  std::string_view client_;
  std::string_view trace_id_{};
  const http::Fields* fields_ = nullptr;
};

class RefusalLog {
 public:
  // A ruling: a refusal is a line at info, a conflict at warning, an admission at debug. An admission that
  // raised the fence is a take-over.
  void ruled(std::string_view operation, const Claim& claim, const Ruling& ruling,
             const Requester& requester);

  // A claim without its signature, or with a wrong one; at warning.
  void not_signed(std::string_view operation, const Claim& claim, const Requester& requester);

  // A write without a token.
  void missing(std::string_view operation, const Resource& resource, const Requester& requester);

  // A connection was not let in under what the sidecar holds; at warning.
  void program_refused(const Resource& resource, std::string_view why, const Requester& requester);

  // A fence was raised, where the ruling that is told does not say so. An event only.
  void taken_over(const Claim& claim);

  // A fence was closed by hand; at warning. token: the one that it cut off, 0: there is no fence.
  void revoked(const Resource& resource, std::int64_t token, bool is_lease_ended, std::string_view client);

  // A claim, or a call without one, that was not judged because of a fault.
  void failed(std::string_view operation, const Claim& claim, const Fault& fault, const Requester& requester);
  void failed(std::string_view operation, const Resource& resource, const Fault& fault,
              const Requester& requester);

  // No claim on the resource is admitted for a while; at warning.
  void quarantined(std::string_view resource, const Fault& why);

  // Whether a line about resource may be written now, and how many were left out since the last.
  struct Allowance {
    bool granted = false;
    std::uint64_t suppressed = 0;
  };
  [[nodiscard]] Allowance take(std::string_view resource, BootClock::time_point now);

  [[nodiscard]] EventLog& events() noexcept { return events_; }

 private:
  struct Slot {
    std::int64_t second = -1;  // of the last line
    std::uint64_t suppressed = 0;
  };

  template <class Make>
  void record(const Make& make) noexcept;
  void write_failure(Event event, const Fault& fault, const Requester& requester);

  EventLog events_;
  std::mutex mutex_;
  std::array<Slot, 1024> slots_{};
};

// text in quotes, with quotes and backslashes escaped, for a key=value line. Call it as fenceguard::quoted():
// by its bare name a std::string finds std::quoted(), where <iomanip> is included. Here it is, so that a bare
// name compiles nowhere, and not only with some version of the libraries.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace fenceguard
