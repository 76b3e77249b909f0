#include "server/proxy/responses.hpp"

#include "server/data/problem.hpp"

namespace fenceguard::proxy {

void add_ruling(http::Response& response, const Ruling& ruling) {
  add_ruling_to([&](const char* name, std::string value) { response.fields.add(name, std::move(value)); },
                ruling.verdict, ruling.highest);
}

void add_cache_rules(http::Response& response, bool is_fenced) {
  add_cache_rules_to([&](const char* name, const char* value) { response.fields.add(name, value); },
                     is_fenced);
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
