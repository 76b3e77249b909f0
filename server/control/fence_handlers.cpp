#include <spdlog/spdlog.h>

#include <mutex>

#include "guard/source/end_lease.hpp"
#include "server/control/handlers.hpp"
#include "server/control/json_body.hpp"
#include "server/data/claim_fields.hpp"
#include "server/data/problem.hpp"
#include "server/data/trace_id.hpp"

namespace fenceguard {
namespace {

// A fence as any client may see it: without its holder, because token and holder together are a claim.
boost::json::object fence_body(const Resource& resource, const Fence& fence) {
  boost::json::object body{{"resource", resource.name()}, {"token", to_string(fence.token)}};
  if (fence.sequence) {
    body["sequence"] = to_string(*fence.sequence);
  } else {
    body["sequence"] = nullptr;
  }
  body["closed"] = fence.closed;
  return body;
}

http::Response no_fence(const Resource& resource, const FenceView& view) {
  ProblemDetails details{"This resource has no fence of its own."};
  details.resource = &resource;
  if (view.floor > 0) details.highest = view.floor;
  return to_response(Problem::not_found, details);
}

// A claim, and the fields in which its signature is looked for.
struct SignedClaim {
  Claim claim;
  http::Fields fields;
};

// The claim of an advance, from the header fields or the body, but not both.
std::variant<SignedClaim, http::Response> read_claim(const Resource& resource, const http::Request& request) {
  auto parsed = parse_claim_fields(request.fields);
  if (auto* bad = std::get_if<BadClaim>(&parsed)) return malformed(std::move(bad->reason));
  JsonBody body{request.body};
  const auto token = body.token("token");
  auto holder = body.holder("holder");
  auto signature = body.text("signature");
  body.require_taken();
  if (const auto* fields = std::get_if<ClaimFields>(&parsed)) {
    if (token || holder || signature)
      return malformed("The claim is either in the header fields or in the body.");
    return SignedClaim{fields->on(resource).without_sequence(), request.fields};
  }
  if (token) {
    SignedClaim read{{resource, *token, holder.value_or(Holder{}), std::nullopt}, {}};
    if (signature) read.fields.add(std::string{signature_field}, std::move(*signature));
    return read;
  }
  if (holder || signature) return malformed("There is a holder or a signature without a token.");
  ProblemDetails details{"An advance carries the token of a lease and its holder."};
  details.resource = &resource;
  return to_response(Problem::missing, details);
}

http::Response answer_advance(const Claim& claim, const Ruling& ruling) {
  if (ruling.verdict != Verdict::admitted) return refusal(claim, ruling);
  auto response = json_response(200, {{"resource", claim.resource.name()},
                                      {"token", to_string(claim.token)},
                                      {"verdict", to_string(ruling.verdict)},
                                      {"highest", std::to_string(ruling.highest)}});
  response.fields.add("Fencing-Verdict", to_string(ruling.verdict));
  response.fields.add("Fencing-Highest", std::to_string(ruling.highest));
  return response;
}

}  // namespace

void FenceHandlers::show(const Resource& resource, http::Reply reply) {
  const auto answer = [this, resource, reply = std::move(reply)](const Outcome<FenceView>& outcome) {
    if (!outcome.ok()) return reply(fault_response(outcome.fault(), &resource));
    const FenceView& view = outcome.value();
    if (!view.record) return reply(no_fence(resource, view));
    auto body = fence_body(resource, *view.record);
    if (const auto why = quarantine_of(resource)) body["quarantined_ms"] = why->retry_after.count();
    reply(json_response(200, body));
  };
  context_.fences.show(resource, context_.pending.track<FenceView>(answer));
}

std::optional<Fault> FenceHandlers::quarantine_of(const Resource& resource) const {
  if (!context_.quarantine) return std::nullopt;
  return context_.quarantine(resource.name());
}

void FenceHandlers::list(FenceListing listing, http::Reply reply) {
  const auto answer = [reply = std::move(reply)](const Outcome<FencePage>& outcome) {
    if (!outcome.ok()) return reply(fault_response(outcome.fault(), nullptr));
    const FencePage& page = outcome.value();
    boost::json::array fences;
    for (const auto& entry : page.entries) fences.push_back(fence_body(entry.resource, entry.fence));
    boost::json::object body{{"fences", std::move(fences)}};
    add_page_end(body, page.has_more, page.entries.empty() ? "" : page.entries.back().resource.name());
    reply(json_response(200, body));
  };
  context_.fences.list(std::move(listing), context_.pending.track<FencePage>(answer));
}

void FenceHandlers::advance(const Resource& resource, const http::Request& request, http::Reply reply) {
  auto read = read_claim(resource, request);
  if (auto* response = std::get_if<http::Response>(&read)) return reply(std::move(*response));
  const auto& [claim, fields] = std::get<SignedClaim>(read);
  if (auto refused = context_.refuse_unsigned("advance", claim, fields, {request.client, request.fields}))
    return reply(std::move(*refused));
  const auto answer = [this, claim = claim, client = request.client,
                       trace_id = std::string{trace_id_of(request.fields)},
                       reply = std::move(reply)](const Outcome<Ruling>& outcome) {
    if (!outcome.ok()) {
      context_.metrics.count(outcome.fault().kind);
      context_.log.failed("advance", claim, outcome.fault(), {client, trace_id});
      return reply(fault_response(outcome.fault(), &claim.resource));
    }
    const Ruling& ruling = outcome.value();
    context_.metrics.count(ruling.verdict);
    if (ruling.changed) context_.metrics.count_advance();
    context_.log.ruled("advance", claim, ruling, {client, trace_id});
    reply(answer_advance(claim, ruling));
  };
  context_.fences.advance(claim, context_.pending.track<Ruling>(answer));
}

void FenceHandlers::ask_source(std::function<Next()> ask, Next late) {
  // The one that takes late out goes on: the source's answer, or the time limit.
  struct Race {
    std::mutex mutex;
    Next late;
    Next take() {
      const std::scoped_lock lock{mutex};
      return std::exchange(late, nullptr);
    }
  };
  const auto race = std::make_shared<Race>();
  race->late = std::move(late);
  const auto give_up = [race] {
    if (const auto next = race->take()) next();
  };
  const bool is_run = context_.service->run_blocking([race, ask = std::move(ask)] {
    const auto next = ask();
    if (race->take()) next();
  });
  if (!is_run) return give_up();
  context_.service->run_after(context_.source_wait, give_up);
}

void FenceHandlers::revoke(const Resource& resource, const std::string& client, const http::Reply& reply) {
  // Held until the answer, so that a stop waits for all the steps.
  const auto reply_held = [ticket = context_.pending.ticket(), reply](http::Response response) {
    reply(std::move(response));
  };
  const Revocation revocation{resource, client, reply_held};
  if (context_.source == nullptr) return close_fence(revocation);
  Revocation without_source = revocation;
  without_source.leaves_lease = true;
  ask_source([this, revocation] { return look_and_close(revocation); },
             [this, without_source = std::move(without_source)] {
               spdlog::warn("event=\"revoke without the source\" resource={} reason=\"no answer in time\"",
                            fenceguard::quoted(without_source.resource.name()));
               close_fence(without_source);
             });
}

FenceHandlers::Next FenceHandlers::look_and_close(Revocation revocation) {
  try {
    if (const auto present = context_.source->show(revocation.resource))
      revocation.lease = present->claim.as_own_grant();
  } catch (const std::exception& error) {
    // The fence is what keeps the holder out; the lease ends with its time to live.
    spdlog::warn("event=\"revoke without the source\" resource={} reason={}",
                 fenceguard::quoted(revocation.resource.name()), fenceguard::quoted(error.what()));
  }
  return [this, revocation = std::move(revocation)] { close_fence(revocation); };
}

void FenceHandlers::close_fence(const Revocation& revocation) {
  // The fence may be closed all the same, and its holder cut off: what failed was to wait for older writes.
  const auto end_if_closed = [this, revocation](const http::Response& refused) {
    return [this, revocation, refused](const Outcome<FenceView>& shown) {
      if (!shown.ok() || !shown.value().record || !shown.value().record->closed)
        return revocation.reply(refused);
      auto refusing = revocation;
      refusing.reply = [refused, reply = revocation.reply](const http::Response&) { reply(refused); };
      end_lease(refusing, shown.value());
    };
  };
  const auto closed = [this, revocation, end_if_closed](const Outcome<FenceView>& outcome) {
    if (!outcome.ok()) {
      context_.log.failed("revoke", revocation.resource, outcome.fault(), revocation.client);
      auto refused = fault_response(outcome.fault(), &revocation.resource);
      if (context_.source == nullptr) return revocation.reply(std::move(refused));
      return context_.fences.show(revocation.resource,
                                  context_.pending.track<FenceView>(end_if_closed(refused)));
    }
    end_lease(revocation, outcome.value());
  };
  context_.fences.revoke(revocation.resource, revocation.lease, context_.pending.track<FenceView>(closed));
}

// Ends the present lease if the closed fence cuts it off; one with a higher token was taken since, and stays.
FenceHandlers::LeaseEnd FenceHandlers::end_revoked(const Resource& resource, const FenceView& view) {
  try {
    const auto present = context_.source->show(resource);
    if (!present || present->claim.token.value() > view.highest()) return LeaseEnd::not_there;
    if (fenceguard::end_lease(*context_.source, present->claim) != Release::released)
      return LeaseEnd::not_there;
    context_.service->released(resource);
    return LeaseEnd::ended;
  } catch (const std::exception& error) {
    spdlog::warn("event=\"lease not ended\" resource={} reason={}", fenceguard::quoted(resource.name()),
                 fenceguard::quoted(error.what()));
    return LeaseEnd::not_known;
  }
}

// The fence is closed and the holder cut off, whatever becomes of its lease.
void FenceHandlers::end_lease(const Revocation& revocation, const FenceView& view) {
  if (context_.source == nullptr) return answer_revoked(revocation, view, LeaseEnd::not_there);
  const auto leave = [this, revocation, view] { answer_revoked(revocation, view, LeaseEnd::not_known); };
  if (revocation.leaves_lease) return leave();
  const auto end = [this, revocation, view]() -> Next {
    const auto how = end_revoked(revocation.resource, view);
    return [this, revocation, view, how] { answer_revoked(revocation, view, how); };
  };
  ask_source(end, leave);
}

void FenceHandlers::answer_revoked(const Revocation& revocation, const FenceView& view, LeaseEnd end) {
  const Resource& resource = revocation.resource;
  const bool is_ended = end == LeaseEnd::ended;
  if (!view.record && end == LeaseEnd::not_known) {
    const Fault fault{FaultKind::unavailable,
                      "The token source does not answer, and the resource has no fence of its own to close."};
    return revocation.reply(fault_response(fault, &resource));
  }
  if (!view.record && !is_ended) return revocation.reply(no_fence(resource, view));
  context_.metrics.count(LeaseEvent::revoked);
  context_.log.revoked(resource, view.record ? view.record->token.value() : 0, is_ended, revocation.client);
  boost::json::object body{{"resource", resource.name()}};
  if (view.record) body = fence_body(resource, *view.record);
  body["lease_ended"] = is_ended;
  if (end == LeaseEnd::not_known)
    body["detail"] =
        "The token source did not say what became of the lease: it may last for its time to live.";
  revocation.reply(json_response(200, body));
}

void FenceHandlers::compact(const http::Reply& reply) {
  const auto refuse = [](const http::Reply& to) {
    to(to_response(
        Problem::not_compactable,
        {"Fences are compacted only where all tokens come from one counter, and the source says which is "
         "the lowest that may still be used."}));
  };
  if (context_.source == nullptr) return refuse(reply);
  const bool is_run = context_.service->run_blocking([this, refuse, reply] {
    std::optional<Token> lowest;
    try {
      lowest = context_.source->lowest_live();
    } catch (...) {
      return reply(fault_response(current_fault(), nullptr));
    }
    if (!lowest) return refuse(reply);
    const auto answer = [reply](const Outcome<Compaction>& outcome) {
      if (!outcome.ok()) return reply(fault_response(outcome.fault(), nullptr));
      const Compaction& done = outcome.value();
      reply(json_response(200, {{"dropped", done.dropped}, {"floor", std::to_string(done.floor)}}));
    };
    context_.fences.compact(*lowest, context_.pending.track<Compaction>(answer));
  });
  if (!is_run) reply(fault_response(source_is_busy(), nullptr));
}

}  // namespace fenceguard
