#include "server/proxy/responses.hpp"

#include "server/data/problem.hpp"

namespace fenceguard::proxy {

void add_ruling(http::Response& response, const Ruling& ruling) {
  response.fields.add("Fencing-Verdict", to_string(ruling.verdict));
  response.fields.add("Fencing-Highest", std::to_string(ruling.highest));
}

void add_cache_rules(http::Response& response, bool is_fenced) {
  if (is_fenced) {
    response.fields.add("Cache-Control", "no-store");
  } else {
    // A cache in front must not answer a fenced read with what it kept of a plain one: nothing would advance.
    response.fields.add("Vary", "Fencing-Token");
  }
}

http::Response turned_down(const Claim& claim, const Ruling& ruling) {
  if (ruling.verdict != Verdict::duplicate) return refusal(claim, ruling);
  http::Response response;
  add_ruling(response, ruling);
  return response;
}

http::Response outcome_unknown(unsigned status, std::string_view detail, const Claim& claim,
                               const Ruling& ruling) {
  ProblemDetails details{std::string{detail}};
  details.verdict = "unknown";
  details.resource = &claim.resource;
  details.token = claim.token;
  details.highest = ruling.highest;
  details.status = status;
  return to_response(Problem::unknown, details);
}

http::Response upstream_unavailable(unsigned status, std::string_view detail, const Resource& resource) {
  ProblemDetails details{std::string{detail}};
  details.verdict = "unavailable";
  details.resource = &resource;
  details.status = status;
  return to_response(Problem::unavailable, details);
}

}  // namespace fenceguard::proxy
