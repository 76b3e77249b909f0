#include "server/data/problem.hpp"

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

namespace fenceguard {
namespace {

// The word of Fencing-Verdict that a problem stands for by itself; empty where it says nothing of a claim.
std::string_view verdict_of(Problem problem) noexcept {
  switch (problem) {
    case Problem::stale:
    case Problem::conflict:
    case Problem::missing:
    case Problem::implausible:
    case Problem::unsigned_claim:
    case Problem::unavailable:
    case Problem::unknown:
      return kind_of(problem).name;
    default:
      return {};
  }
}

Problem fault_problem(FaultKind kind) noexcept {
  switch (kind) {
    case FaultKind::invalid_input:
      return Problem::malformed;
    case FaultKind::implausible:
      return Problem::implausible;
    case FaultKind::unavailable:
      return Problem::unavailable;
    case FaultKind::unknown:
      break;
  }
  return Problem::unknown;
}

// The first token of a source that a client has taken elsewhere, where its numbers stand high.
constexpr std::string_view implausible_advice =
    ". If a token source granted it, say where the numbers of that source stand by 'fenceguard fence init "
    "--storage URL --source URL' (or restart the guard with --source URL --init), and take the lock again. "
    "If not, find out where the number came from.";

// Why a claim is stale, so that its holder knows what to do about it.
std::string stale_detail(const Claim& claim, const Ruling& ruling) {
  if (claim.token.value() < ruling.highest || !ruling.fence) {
    return "A newer token was seen for this resource. The lock was lost: undo, take it again, and start "
           "over.";
  }
  if (ruling.fence->closed) {
    return "The fence of this resource was closed by a revoke. Take the lock again for a new token.";
  }
  return "A later write of the same holder took effect before this one, and this one is not known to have "
         "done so.";
}

}  // namespace

const ProblemKind& kind_of(Problem problem) noexcept {
  static const ProblemKind kinds[] = {
      {"stale", 412, "The claim is stale"},
      {"conflict", 409, "The token belongs to another holder"},
      {"missing", 428, "A token is needed"},
      {"implausible", 422, "The token is implausibly high"},
      {"unsigned", 401, "The claim is not signed, or its signature is wrong"},
      {"malformed", 400, "The request is malformed"},
      {"not-found", 404, "Not found"},
      {"method-not-allowed", 405, "The method is not allowed here"},
      {"timeout", 408, "The request took too long to arrive"},
      {"too-large", 413, "The body is too large"},
      {"header-too-large", 431, "The header block is too large"},
      {"media-type", 415, "The content type is not application/json"},
      {"precondition", 412, "A precondition of the request failed"},
      {"unauthorized", 401, "A bearer token is needed"},
      {"forbidden", 403, "The role of this bearer token is not enough"},
      {"foreign-host", 403, "The Host is not one of ours"},
      {"foreign-origin", 403, "Web pages of other origins may not call this"},
      {"held", 409, "The lock is held"},
      {"lost", 412, "The lease is lost"},
      {"no-source", 501, "There is no token source"},
      {"not-compactable", 409, "The fences cannot be compacted"},
      {"not-listable", 501, "The token source cannot list its leases"},
      {"unavailable", 503, "Unavailable, nothing was written"},
      {"unknown", 500, "The outcome is unknown"},
  };
  return kinds[static_cast<std::size_t>(problem)];
}

http::Response to_response(Problem problem, const ProblemDetails& details) {
  const ProblemKind& kind = kind_of(problem);
  const unsigned status = details.status != 0 ? details.status : kind.status;
  const auto verdict = details.verdict.empty() ? verdict_of(problem) : details.verdict;
  boost::json::object body;
  body["type"] = "urn:fenceguard:problem:" + std::string{kind.name};
  body["title"] = kind.title;
  body["status"] = status;
  body["detail"] = details.detail;
  if (!verdict.empty()) body["verdict"] = verdict;
  if (details.resource != nullptr) body["resource"] = details.resource->name();
  if (details.token) body["token"] = to_string(*details.token);
  if (details.highest) body["highest"] = std::to_string(*details.highest);

  http::Response response;
  response.status = status;
  response.fields.add("Content-Type", "application/problem+json");
  response.fields.add("Cache-Control", "no-store");
  if (!verdict.empty()) response.fields.add("Fencing-Verdict", std::string{verdict});
  if (details.highest) response.fields.add("Fencing-Highest", std::to_string(*details.highest));
  if (status == 503) response.fields.add("Retry-After", retry_after_seconds(details.retry_after));
  response.body = boost::json::serialize(body) + "\n";
  return response;
}

http::Response malformed(std::string detail) {
  return to_response(Problem::malformed, {std::move(detail)});
}

http::Response method_not_allowed(std::string_view allow) {
  auto response = to_response(Problem::method, {"Allowed here: " + std::string{allow} + "."});
  response.fields.add("Allow", std::string{allow});
  return response;
}

http::Response refusal(const Claim& claim, const Ruling& ruling) {
  ProblemDetails details;
  details.resource = &claim.resource;
  details.token = claim.token;
  details.highest = ruling.highest;
  if (ruling.verdict == Verdict::conflict) {
    details.detail =
        "Another holder uses this number: the token source issued it twice. Take the lock again.";
    return to_response(Problem::conflict, details);
  }
  details.detail = stale_detail(claim, ruling);
  return to_response(Problem::stale, details);
}

http::Response fault_response(const Fault& fault, const Resource* resource) {
  ProblemDetails details;
  details.detail = fault.message;
  if (fault.kind == FaultKind::implausible) details.detail += implausible_advice;
  details.resource = resource;
  details.retry_after = fault.retry_after;
  return to_response(fault_problem(fault.kind), details);
}

http::Response refuse_request(unsigned status, std::string_view why) {
  const auto problem = [status] {
    switch (status) {
      case 408:
        return Problem::timeout;
      case 413:
        return Problem::too_large;
      case 431:
        return Problem::header_too_large;
      case 500:
        // The handler that failed may have begun.
        return Problem::unknown;
      case 503:
        return Problem::unavailable;
      default:
        return Problem::malformed;
    }
  }();
  ProblemDetails details{std::string{why}};
  details.status = status;
  auto response = to_response(problem, details);
  response.close = true;
  return response;
}

std::string retry_after_seconds(std::chrono::milliseconds wait) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(wait).count();
  return std::to_string(std::max<std::int64_t>(1, seconds));
}

}  // namespace fenceguard
