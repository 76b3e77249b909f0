#pragma once

// Problem: every 'no' and every fault that the sidecar can answer, as application/problem+json (RFC 9457).
// One table holds name, status and title of each; docs list what a caller should do. The type is
// urn:fenceguard:problem:NAME.
//
// A refusal never tells the present holder's name: token and holder together are a claim.
//
// Pure; safe to use from any thread.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "guard/error.hpp"
#include "guard/judge.hpp"
#include "server/http/wire/message.hpp"

namespace fenceguard {

enum class Problem {
  // About the claim.
  stale,
  conflict,
  missing,
  implausible,
  unsigned_claim,
  // About the request.
  malformed,
  not_found,
  method,
  timeout,
  too_large,
  header_too_large,
  media_type,
  precondition,
  // About the client.
  unauthorized,
  forbidden,
  foreign_host,
  foreign_origin,
  // About leases.
  held,
  lost,
  no_source,
  not_compactable,
  not_listable,
  // Faults.
  unavailable,
  unknown,
};

// What a problem says beyond its kind. Members that are left out do not appear.
struct ProblemDetails {
  std::string detail;  // a sentence for people; never holds a holder's name, a password or a payload
  // The word of Fencing-Verdict. Left out, it is the problem's own: a refusal or a fault has one.
  std::string_view verdict{};
  const Resource* resource = nullptr;
  std::optional<Token> token{};
  std::optional<std::int64_t> highest{};
  std::chrono::milliseconds retry_after{};  // of a 503
  unsigned status = 0;                      // in place of the kind's own; 0: the kind's
};

struct ProblemKind {
  std::string_view name;
  unsigned status;
  std::string_view title;
};

[[nodiscard]] const ProblemKind& kind_of(Problem problem) noexcept;

// The answer, with Fencing-Verdict and Fencing-Highest where details have them, and Retry-After where it is
// 503.
[[nodiscard]] http::Response to_response(Problem problem, const ProblemDetails& details);

// A 400 with its reason.
[[nodiscard]] http::Response malformed(std::string detail);

// A 405 with the methods that are allowed.
[[nodiscard]] http::Response method_not_allowed(std::string_view allow);

// The answer to a claim that was not admitted. REQUIRES: ruling.verdict is stale or conflict.
[[nodiscard]] http::Response refusal(const Claim& claim, const Ruling& ruling);

// The answer to a fault of the store or the source; resource may be null.
[[nodiscard]] http::Response fault_response(const Fault& fault, const Resource* resource);

// The answer to what never became a request; see http::Handler::refuse.
[[nodiscard]] http::Response refuse_request(unsigned status, std::string_view why);

// Retry-After counts whole seconds: at least one, and rounded up.
[[nodiscard]] std::string retry_after_seconds(std::chrono::milliseconds wait);

}  // namespace fenceguard
