#include "server/proxy/request/operation.hpp"

#include "server/data/claim_fields.hpp"
#include "server/data/problem.hpp"
#include "server/data/signature.hpp"
#include "server/proxy/request/field_names.hpp"
#include "server/proxy/request/field_rules.hpp"

namespace fenceguard::proxy {
namespace {

constexpr std::string_view destination_prefix = "Fencing-Destination-";

Rejection turned_malformed(std::string reason) {
  return {malformed(std::move(reason)), Rejection::Why::malformed, std::nullopt};
}

Rejection turned_missing(const Resource& resource, std::string detail) {
  ProblemDetails details{std::move(detail)};
  details.verdict = "missing";
  details.resource = &resource;
  return {to_response(Problem::missing, details), Rejection::Why::missing, std::nullopt, resource};
}

// The fields of the second claim, under the names of a first one. known is false where one is not.
struct DestinationFields {
  http::Fields fields;
  bool is_known = true;
};

DestinationFields destination_fields(const http::Fields& fields) {
  DestinationFields found;
  for (const auto& [name, value] : fields) {
    if (!could_begin_with(name, destination_prefix)) continue;
    const auto rest = std::string_view{name}.substr(destination_prefix.size());
    const bool is_known =
        equals_ignoring_case(name.substr(0, destination_prefix.size()), destination_prefix) &&
        (equals_ignoring_case(rest, "Token") || equals_ignoring_case(rest, "Holder") ||
         equals_ignoring_case(rest, "Signature"));
    found.is_known = found.is_known && is_known;
    found.fields.add("Fencing-" + std::string{rest}, value);
  }
  return found;
}

class Parser {
 public:
  Parser(const http::Request& head, const OperationRules& rules) : head_{head}, rules_{rules} {}

  std::variant<Operation, Rejection> parse() {
    const auto method = find_method(head_.method);
    const auto slash = method && method->may_name_collection ? FinalSlash::kept : FinalSlash::refused;
    auto target = parse_target(head_.target, rules_.resource_depth, slash);
    if (auto* bad = std::get_if<BadPath>(&target)) return turned_malformed(std::move(bad->reason));
    if (!method)
      return Rejection{method_not_allowed(known_methods()), Rejection::Why::malformed, std::nullopt};
    if (const auto objection = objection_to(head_.fields); !objection.empty())
      return turned_malformed(std::string{objection});
    Operation operation{.method = *method, .target = std::move(std::get<Target>(target))};
    operation.is_alone = rules_.resource_depth == 0 && method->reaches_members;
    if (operation.is_alone) {
      if (auto rejection = check_reach(*method)) return std::move(*rejection);
    }
    if (auto rejection = read_conditions(operation)) return std::move(*rejection);
    if (auto rejection = read_claim(operation)) return std::move(*rejection);
    if (auto rejection = read_destination(operation)) return std::move(*rejection);
    return operation;
  }

 private:
  using Objection = std::optional<Rejection>;

  // The one place where signatures are looked at.
  Objection check(const Claim& claim, std::string_view field) const {
    auto response = check_signature(rules_.keys, claim, head_.fields, field);
    if (!response) return std::nullopt;
    const auto why = response->status == 401 ? Rejection::Why::not_signed : Rejection::Why::malformed;
    return Rejection{std::move(*response), why, claim};
  }

  // Each path is a resource of its own, so what is done to a collection must end there.
  Objection check_reach(const Method& method) const {
    for (const auto& [name, value] : head_.fields) {
      if (could_pass_for(name, "Depth") && value != "0")
        return turned_malformed("What is in a collection has fences of its own here: send 'Depth: 0'.");
      if (method.kind == Method::Kind::pair && could_pass_for(name, "Overwrite") && value != "F")
        return turned_malformed(
            "A destination that is there could be a collection, whose members have fences of their own here: "
            "send 'Overwrite: F'.");
    }
    return std::nullopt;
  }

  Objection read_conditions(Operation& operation) const {
    if (!head_.fields.contains("If")) return std::nullopt;
    const auto value = head_.fields.single("If");
    if (!value) return turned_malformed("If comes more than once.");
    auto parsed = parse_if(*value, head_.fields.single("Host").value_or(std::string_view{}));
    if (auto* bad = std::get_if<BadPath>(&parsed)) return turned_malformed(std::move(bad->reason));
    operation.conditions = std::move(std::get<std::vector<IfPiece>>(parsed));
    return std::nullopt;
  }

  Objection read_claim(Operation& operation) const {
    auto parsed = parse_claim_fields(head_.fields);
    if (auto* bad = std::get_if<BadClaim>(&parsed)) return turned_malformed(std::move(bad->reason));
    if (auto* given = std::get_if<ClaimFields>(&parsed)) {
      if (!operation.is_write()) given->sequence.reset();
      operation.claims.push_back(given->on(operation.target.resource));
      return check(operation.claims.front(), signature_field);
    }
    if (!operation.is_write()) return std::nullopt;
    return turned_missing(operation.target.resource,
                          "A write carries the token of a lease in Fencing-Token, and its holder in "
                          "Fencing-Holder.");
  }

  Objection read_destination(Operation& operation) const {
    auto given = destination_fields(head_.fields);
    if (!given.is_known) return turned_malformed("A destination has a token, a holder and a signature only.");
    if (operation.method.kind != Method::Kind::pair) {
      if (given.fields.begin() == given.fields.end()) return std::nullopt;
      return turned_malformed("Fencing-Destination-… belongs to MOVE and COPY only.");
    }
    const auto destination = head_.fields.single("Destination");
    if (!destination) return turned_malformed("MOVE and COPY name one Destination.");
    auto target = parse_destination(*destination, head_.fields.single("Host").value_or(std::string_view{}),
                                    rules_.resource_depth);
    if (auto* bad = std::get_if<BadPath>(&target)) return turned_malformed(std::move(bad->reason));
    operation.destination = std::move(std::get<Target>(target));
    return read_destination_claim(operation, given.fields);
  }

  Objection read_destination_claim(Operation& operation, const http::Fields& fields) const {
    auto parsed = parse_claim_fields(fields);
    if (const auto* bad = std::get_if<BadClaim>(&parsed))
      return turned_malformed("The destination's claim: " + bad->reason);
    const auto& resource = operation.destination->resource;
    const auto& own = operation.claims.front();
    const bool is_one_resource = resource == own.resource;
    const auto* given = std::get_if<ClaimFields>(&parsed);
    if (given == nullptr) {
      if (is_one_resource) return std::nullopt;
      return turned_missing(resource,
                            "MOVE and COPY carry a second claim in Fencing-Destination-Token and "
                            "Fencing-Destination-Holder.");
    }
    auto claim = given->on(resource);
    if (auto rejection = check(claim, destination_signature_field)) return rejection;
    if (is_one_resource) {
      if (claim == own.without_sequence()) return std::nullopt;
      return turned_malformed("Both paths are one resource, so both claims must be the same.");
    }
    const bool is_first = resource < own.resource;
    operation.own = is_first ? 1 : 0;
    operation.claims.insert(is_first ? operation.claims.begin() : operation.claims.end(), std::move(claim));
    return std::nullopt;
  }

  const http::Request& head_;
  const OperationRules& rules_;
};

}  // namespace

std::variant<Operation, Rejection> parse_operation(const http::Request& head, const OperationRules& rules) {
  return Parser{head, rules}.parse();
}

}  // namespace fenceguard::proxy
