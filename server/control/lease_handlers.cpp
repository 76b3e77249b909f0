#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "guard/claim_keys.hpp"
#include "guard/source/lease_lister.hpp"
#include "server/control/handlers.hpp"
#include "server/control/json_body.hpp"
#include "server/data/claim_fields.hpp"
#include "server/data/problem.hpp"
#include "server/data/trace_id.hpp"

namespace fenceguard {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds ttl_default{10'000};
constexpr milliseconds wait_max{600'000};

milliseconds take_ttl(JsonBody& body) {
  const auto value = body.integer("ttl_ms").value_or(ttl_default.count());
  if (value < ttl_min.count() || value > ttl_max.count()) throw InvalidInput("ttl_ms is 10 to 86400000.");
  return milliseconds{value};
}

LeaseService::Request read_ask(const http::Request& request) {
  JsonBody body{request.body};
  auto name = body.text("resource");
  if (!name) throw InvalidInput("The member 'resource' is missing.");
  auto holder = body.holder("holder");
  const auto ttl = take_ttl(body);
  const auto wait = body.integer("wait_ms").value_or(0);
  if (wait < 0 || wait > wait_max.count()) throw InvalidInput("wait_ms is 0 to 600000.");
  body.require_taken();
  const bool is_named = holder.has_value();
  return {Resource{std::move(*name)},
          is_named ? std::move(*holder) : Holder::random(),
          is_named,
          ttl,
          milliseconds{wait},
          request.client,
          std::string{trace_id_of(request.fields)}};
}

// The claim that renews or releases a lease, or the answer why there is none.
std::variant<Claim, http::Response> read_claim(const Resource& resource, const http::Request& request) {
  auto parsed = parse_claim_fields(request.fields);
  if (auto* bad = std::get_if<BadClaim>(&parsed)) return malformed(std::move(bad->reason));
  if (auto* fields = std::get_if<ClaimFields>(&parsed)) return fields->on(resource).without_sequence();
  ProblemDetails details{"A lease is named by its token and holder, in Fencing-Token and Fencing-Holder."};
  details.verdict = "missing";
  details.resource = &resource;
  return to_response(Problem::missing, details);
}

http::Response lost(const Claim& claim) {
  ProblemDetails details{"This lease expired, was ended, or belongs to another holder."};
  details.resource = &claim.resource;
  details.token = claim.token;
  return to_response(Problem::lost, details);
}

// Says what is left of a lease of which the source was asked at asked_at: never more than the source itself
// allows. Of one that lives by a connection there is nothing to say.
void add_left(boost::json::object& body, const TokenSource& source, milliseconds ttl,
              BootClock::time_point asked_at) {
  if (source.lives_by_connection()) return;
  const auto passed = std::chrono::ceil<milliseconds>(BootClock::now() - asked_at);
  body["expires_in_ms"] = std::max(ttl - passed, milliseconds{0}).count();
}

// A lease as every caller may see it: never its holder, and no time where it lives by a connection.
boost::json::object lease_body(const LeaseRecord& lease, const TokenSource& source,
                               BootClock::time_point asked_at) {
  boost::json::object body{{"resource", lease.claim.resource.name()},
                           {"token", to_string(lease.claim.token)}};
  if (!lease.remaining || source.lives_by_connection()) return body;
  body["ttl_ms"] = lease.remaining->count();
  add_left(body, source, *lease.remaining, asked_at);
  return body;
}

// What the holder is told of its own lease, signed where there are keys.
http::Response own_lease(unsigned status, const Grant& grant, const TokenSource& source,
                         const ClaimKeys* keys) {
  const Claim& claim = grant.claim;
  boost::json::object body{{"resource", claim.resource.name()},
                           {"token", to_string(claim.token)},
                           {"ttl_ms", grant.ttl.count()},
                           {"holder", claim.holder.id()}};
  add_left(body, source, grant.ttl, grant.asked_at);
  if (keys == nullptr) return json_response(status, body);
  const auto signature = keys->sign(claim);
  body["signature"] = signature;
  auto response = json_response(status, body);
  response.fields.add(std::string{signature_field}, signature);
  return response;
}

http::Response answer_ask(LeaseService::Answer answer, const Resource& resource, const TokenSource& source,
                          const ClaimKeys* keys) {
  if (auto* granted = std::get_if<LeaseService::Granted>(&answer)) {
    const Grant& grant = granted->grant;
    auto response = own_lease(grant.is_new ? 201 : 200, grant, source, keys);
    response.undelivered = std::move(granted->undelivered);
    return response;
  }
  if (const auto* held = std::get_if<LockBusy>(&answer)) {
    ProblemDetails details{"Another holder has this lock. Ask again later, or wait with wait_ms."};
    details.resource = &resource;
    auto response = to_response(Problem::held, details);
    response.fields.add("Retry-After", retry_after_seconds(held->retry_after));
    return response;
  }
  if (const auto* fault = std::get_if<Fault>(&answer)) return fault_response(*fault, &resource);
  return fault_response({FaultKind::unavailable, "Too many wait for leases, or the guard is stopping."},
                        &resource);
}

}  // namespace

void LeaseHandlers::acquire(const http::Request& request, const std::shared_ptr<http::Caller>& caller,
                            http::Reply reply) {
  auto ask = read_ask(request);
  context_.require_protected(ask.resource);
  const Resource resource = ask.resource;
  context_.service->acquire(
      std::move(ask), caller, [this, resource, reply = std::move(reply)](LeaseService::Answer answer) {
        reply(answer_ask(std::move(answer), resource, *context_.source, context_.signatures.signing));
      });
}

void LeaseHandlers::renew(const Resource& resource, const http::Request& request, http::Reply reply) {
  JsonBody body{request.body};
  const auto ttl = take_ttl(body);
  body.require_taken();
  auto read = read_claim(resource, request);
  if (auto* response = std::get_if<http::Response>(&read)) return reply(std::move(*response));
  if (auto refused = context_.refuse_unsigned("renew", std::get<Claim>(read), request.fields,
                                              {request.client, request.fields}))
    return reply(std::move(*refused));
  run(Kind::renewal, resource, reply, [this, ttl, claim = std::get<Claim>(std::move(read))] {
    const auto asked_at = BootClock::now();
    const bool is_held = context_.source->renew(claim, ttl) == Renewal::renewed;
    context_.metrics.count(is_held ? LeaseEvent::renewed : LeaseEvent::lost);
    if (!is_held) return lost(claim);
    return own_lease(200, {claim, ttl, false, asked_at}, *context_.source, context_.signatures.signing);
  });
}

void LeaseHandlers::release(const Resource& resource, const http::Request& request, http::Reply reply) {
  if (!request.body.empty()) return reply(malformed("There is no body here."));
  auto read = read_claim(resource, request);
  if (auto* response = std::get_if<http::Response>(&read)) return reply(std::move(*response));
  if (auto refused = context_.refuse_unsigned("release", std::get<Claim>(read), request.fields,
                                              {request.client, request.fields}))
    return reply(std::move(*refused));
  run(Kind::other, resource, reply, [this, claim = std::get<Claim>(std::move(read))] {
    // First, so that the next holder finds that there is nobody to cut off.
    if (context_.finish) context_.finish(claim);
    const bool was_held = context_.source->release(claim) == Release::released;
    context_.metrics.count(was_held ? LeaseEvent::released : LeaseEvent::lost);
    if (!was_held) return lost(claim);
    context_.service->released(claim.resource);
    http::Response response;
    response.status = 204;
    return response;
  });
}

void LeaseHandlers::show(const Resource& resource, http::Reply reply) {
  run(Kind::other, resource, reply, [this, resource] {
    const auto asked_at = BootClock::now();
    const auto lease = context_.source->show(resource);
    if (lease) return json_response(200, lease_body(*lease, *context_.source, asked_at));
    ProblemDetails details{"This lock is not held."};
    details.resource = &resource;
    return to_response(Problem::not_found, details);
  });
}

void LeaseHandlers::list(const FenceListing& listing, const http::Reply& reply) {
  auto* lister = dynamic_cast<LeaseLister*>(context_.source);
  if (lister == nullptr) {
    return reply(to_response(
        Problem::not_listable,
        {"This token source cannot list its leases; ask for one by its name at /v1/leases/RESOURCE."}));
  }
  run(Kind::other, std::nullopt, reply, [this, lister, listing] {
    const auto asked_at = BootClock::now();
    const auto page = lister->list_leases(listing);
    boost::json::array leases;
    for (const auto& lease : page.entries) leases.push_back(lease_body(lease, *context_.source, asked_at));
    boost::json::object body{{"leases", std::move(leases)}};
    add_page_end(body, page.has_more, page.entries.empty() ? "" : page.entries.back().claim.resource.name());
    return json_response(200, body);
  });
}

void LeaseHandlers::raise(const Resource& resource, const http::Request& request, http::Reply reply) {
  JsonBody body{request.body};
  const auto mark = body.token("token");
  body.require_taken();
  if (!mark) throw InvalidInput("The member 'token' is missing.");
  const std::int64_t highest = context_.fences.status().highest;
  if (mark->value() - jump_max > highest) {
    ProblemDetails details{
        "A source is raised at most 2^40 above the highest token that the guard has seen."};
    details.verdict = to_string(FaultKind::implausible);
    details.resource = &resource;
    details.token = mark;
    return reply(to_response(Problem::implausible, details));
  }
  run(Kind::other, resource, reply, [this, resource, mark = *mark] {
    context_.source->raise(resource, mark);
    spdlog::warn("event=\"source raised by hand\" resource={} token={}", fenceguard::quoted(resource.name()),
                 mark.value());
    return json_response(200, {{"resource", resource.name()}, {"token", to_string(mark)}});
  });
}

void LeaseHandlers::run(Kind kind, const std::optional<Resource>& resource, const http::Reply& reply,
                        std::function<http::Response()> call) {
  auto task = [this, resource, reply, call = std::move(call)] {
    http::Response response;
    try {
      response = call();
    } catch (...) {
      const Fault fault = current_fault();
      count_fault(fault);
      response = fault_response(fault, resource ? &*resource : nullptr);
    }
    reply(std::move(response));
  };
  auto& service = *context_.service;
  const bool is_run =
      kind == Kind::renewal ? service.run_renewal(std::move(task)) : service.run_blocking(std::move(task));
  if (is_run) return;
  count_fault(source_is_busy());
  reply(fault_response(source_is_busy(), resource ? &*resource : nullptr));
}

void LeaseHandlers::count_fault(const Fault& fault) {
  context_.metrics.count(LeaseEvent::failed);
  spdlog::warn("event=\"lease call failed\" kind={} reason={}", to_string(fault.kind),
               fenceguard::quoted(fault.message));
}

}  // namespace fenceguard
