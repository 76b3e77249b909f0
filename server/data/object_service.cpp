#include "server/data/object_service.hpp"

#include "server/data/problem.hpp"

namespace fenceguard {
namespace {

constexpr std::string_view default_content_type = "application/octet-stream";

// A read writes nothing but the fence.
Fault fault_of_read(Fault fault) {
  if (fault.kind != FaultKind::unknown) return fault;
  fault.kind = FaultKind::unavailable;
  fault.message = "nothing was read, but the fence may have been raised: " + fault.message;
  return fault;
}

void add_ruling(http::Response& response, const Ruling& ruling) {
  response.fields.add("Fencing-Verdict", to_string(ruling.verdict));
  response.fields.add("Fencing-Highest", std::to_string(ruling.highest));
}

// The answer to an admitted operation that the storage itself refused.
http::Response storage_refusal(Problem problem, std::string detail, const Resource& resource,
                               const std::optional<Ruling>& ruling) {
  ProblemDetails details{std::move(detail)};
  details.resource = &resource;
  if (ruling) {
    details.verdict = to_string(ruling->verdict);
    details.highest = ruling->highest;
  }
  return to_response(problem, details);
}

// What of a PUT's header fields cannot be honoured; empty if nothing.
std::string_view put_objection(const http::Fields& fields) {
  if (fields.contains("Content-Range"))
    return "A PUT replaces the whole object: Content-Range cannot be honoured.";
  if (fields.contains("Content-Encoding"))
    return "Content-Encoding is not kept with the object: send it plain.";
  if (fields.count("Content-Type") > 1) return "Content-Type comes more than once.";
  return {};
}

}  // namespace

std::optional<ObjectService::Method> ObjectService::parse_method(std::string_view method) noexcept {
  if (method == "PUT") return Method::put;
  if (method == "GET") return Method::get;
  if (method == "HEAD") return Method::head;
  if (method == "DELETE") return Method::remove;
  return std::nullopt;
}

std::variant<ObjectService::Operation, http::Response> ObjectService::parse(const http::Request& head) {
  if (hosts_ != nullptr) {
    if (auto refused = hosts_->refuse_host(head)) return std::move(*refused);
  }
  auto path = parse_resource_path(head.target, resource_depth_);
  if (auto* bad = std::get_if<BadPath>(&path)) return malformed(std::move(bad->reason));
  const auto method = parse_method(head.method);
  if (!method) return method_not_allowed("GET, HEAD, PUT, DELETE");
  auto claim = parse_claim_fields(head.fields);
  if (auto* bad = std::get_if<BadClaim>(&claim)) return malformed(std::move(bad->reason));
  auto conditions = parse_conditions(head.fields);
  if (auto* bad = std::get_if<BadConditions>(&conditions)) return malformed(std::move(bad->reason));

  Operation operation{*method, std::move(std::get<ResourcePath>(path)), std::nullopt,
                      std::move(std::get<Conditions>(conditions))};
  if (*method == Method::put) {
    if (const auto why = put_objection(head.fields); !why.empty()) return malformed(std::string{why});
  }
  if (auto* given = std::get_if<ClaimFields>(&claim)) {
    operation.claim = std::move(*given);
    if (auto refused = refuse_unsigned(operation, head)) return std::move(*refused);
  } else if (*method == Method::put || *method == Method::remove) {
    metrics_.count_missing();
    log_.missing("write", operation.at.resource, {head.client, head.fields});
    ProblemDetails details{
        "A write carries the token of a lease in Fencing-Token, and its holder in Fencing-Holder."};
    details.resource = &operation.at.resource;
    return to_response(Problem::missing, details);
  }
  return operation;
}

std::optional<http::Response> ObjectService::refuse_unsigned(const Operation& operation,
                                                             const http::Request& head) {
  if (keys_ == nullptr) return std::nullopt;
  const auto claim = operation.claim->on(operation.at.resource);
  auto refused = check_signature(keys_, claim, head.fields);
  if (!refused) return std::nullopt;
  const bool is_write = operation.method == Method::put || operation.method == Method::remove;
  metrics_.count_unsigned();
  log_.not_signed(is_write ? "write" : "read", claim, {head.client, head.fields});
  return refused;
}

std::optional<http::Response> ObjectService::preview(http::Request& request) {
  auto parsed = parse(request);
  if (auto* response = std::get_if<http::Response>(&parsed)) return std::move(*response);
  request.head = std::move(std::get<Operation>(parsed));
  return std::nullopt;
}

void ObjectService::handle(http::Request request, std::shared_ptr<http::Caller> /*caller*/,
                           http::Reply reply) {
  auto operation = std::any_cast<Operation>(std::move(request.head));
  // Keys may have been withdrawn while the body was on its way.
  if (operation.claim && !request.body.empty()) {
    if (auto refused = refuse_unsigned(operation, request)) return reply(std::move(*refused));
  }
  const bool is_write = operation.method == Method::put || operation.method == Method::remove;
  if (is_write) return write(std::move(operation), std::move(request), std::move(reply));
  read(std::move(operation), {std::move(request.client), std::move(request.fields)}, std::move(reply));
}

http::Response ObjectService::refuse(unsigned status, std::string_view why) {
  return refuse_request(status, why);
}

void ObjectService::write(Operation operation, http::Request request, http::Reply reply) {
  const auto begun = BootClock::now();
  ObjectWrite change;
  change.path = std::move(operation.at.path);
  change.if_match = std::move(operation.conditions.if_match);
  change.if_none_match = std::move(operation.conditions.if_none_match);
  if (operation.method == Method::put) {
    change.content_type = request.fields.single("Content-Type").value_or(default_content_type);
    change.body = std::move(request.body);
  } else {
    change.kind = ObjectWrite::Kind::remove;
  }
  Claim claim = operation.claim->on(std::move(operation.at.resource));
  objects_.write(
      claim, std::move(change),
      pending_.track<WriteReport>([this, begun, claim,
                                   sender = Sender{std::move(request.client), std::move(request.fields)},
                                   reply = std::move(reply)](const Outcome<WriteReport>& outcome) {
        metrics_.observe_write(BootClock::now() - begun);
        reply(answer_write(claim, sender.requester(), outcome));
      }));
}

http::Response ObjectService::answer_write(const Claim& claim, const Requester& requester,
                                           const Outcome<WriteReport>& outcome) {
  if (!outcome.ok()) return answer_fault("write", claim, outcome.fault(), requester);
  const WriteReport& report = outcome.value();
  note("write", claim, report.ruling, requester);
  if (report.ruling.verdict == Verdict::stale || report.ruling.verdict == Verdict::conflict) {
    return refusal(claim, report.ruling);
  }
  http::Response response;
  if (report.ruling.verdict == Verdict::admitted) {
    switch (report.ending.value_or(ObjectEnding::replaced)) {
      case ObjectEnding::created:
        response.status = 201;
        break;
      case ObjectEnding::replaced:
      case ObjectEnding::removed:
        response.status = 204;
        break;
      case ObjectEnding::not_found:
        return storage_refusal(Problem::not_found, "Object not found.", claim.resource, report.ruling);
      case ObjectEnding::precondition_failed:
        return storage_refusal(Problem::precondition,
                               "The claim is good, but If-Match or If-None-Match failed.", claim.resource,
                               report.ruling);
    }
    if (!report.etag.empty()) response.fields.add("ETag", report.etag);
  }
  add_ruling(response, report.ruling);
  return response;
}

void ObjectService::read(Operation operation, Sender sender, http::Reply reply) {
  std::optional<Claim> claim;
  if (operation.claim) claim = operation.claim->on(operation.at.resource).without_sequence();
  ObjectStore::Read what{std::move(operation.at.path), claim, operation.method == Method::get};
  Asked asked{std::move(claim), std::move(operation.at.resource), std::move(operation.conditions),
              std::move(sender)};
  objects_.read(std::move(what),
                pending_.track<ReadReport>(
                    [this, asked = std::move(asked), reply = std::move(reply)](Outcome<ReadReport> outcome) {
                      reply(answer_read(asked, std::move(outcome)));
                    }));
}

http::Response ObjectService::answer_read(const Asked& asked, Outcome<ReadReport> outcome) {
  const auto& [claim, resource, conditions, sender] = asked;
  if (!outcome.ok() && claim)
    return answer_fault("read", *claim, fault_of_read(outcome.fault()), sender.requester());
  if (!outcome.ok())
    return answer_fault("read", resource, fault_of_read(outcome.fault()), sender.requester());
  ReadReport& report = outcome.value();
  if (claim && report.ruling) {
    note("read", *claim, *report.ruling, sender.requester());
    if (report.ruling->changed) metrics_.count_advance();
    if (report.ruling->verdict != Verdict::admitted) return refusal(*claim, *report.ruling);
  }
  const auto condition = evaluate_read(conditions, report.object ? report.object->etag : std::string_view{});
  if (condition == ReadCondition::failed) {
    return storage_refusal(Problem::precondition, "If-Match failed.", resource, report.ruling);
  }
  if (!report.object)
    return storage_refusal(Problem::not_found, "Object not found.", resource, report.ruling);

  http::Response response;
  if (report.ruling) {
    add_ruling(response, *report.ruling);
    response.fields.add("Cache-Control", "no-store");
  } else {
    // A cache in front must not answer a fenced read with what it kept of a plain one: nothing would advance.
    response.fields.add("Cache-Control", "no-cache");
    response.fields.add("Vary", "Fencing-Token");
  }
  response.fields.add("ETag", report.object->etag);
  if (condition == ReadCondition::not_modified) {
    response.status = 304;
    return response;
  }
  response.fields.add("Content-Type", std::move(report.object->content_type));
  response.head_length = static_cast<std::size_t>(report.object->size_bytes);
  response.body = std::move(report.object->body);
  return response;
}

http::Response ObjectService::answer_fault(std::string_view what, const Claim& claim, const Fault& fault,
                                           const Requester& requester) {
  metrics_.count(fault.kind);
  log_.failed(what, claim, fault, requester);
  return fault_response(fault, &claim.resource);
}

http::Response ObjectService::answer_fault(std::string_view what, const Resource& resource,
                                           const Fault& fault, const Requester& requester) {
  metrics_.count(fault.kind);
  log_.failed(what, resource, fault, requester);
  return fault_response(fault, &resource);
}

void ObjectService::note(std::string_view what, const Claim& claim, const Ruling& ruling,
                         const Requester& requester) {
  metrics_.count(ruling.verdict);
  log_.ruled(what, claim, ruling, requester);
}

}  // namespace fenceguard
