#pragma once

// Operation: a request to the proxy as what is to be judged and forwarded, or the answer that turns it away
// before anything is judged. Nothing here moves a fence.
//
// Pure; safe to use from any thread.

#include <optional>
#include <variant>
#include <vector>

#include "guard/claim.hpp"
#include "server/http/wire/message.hpp"
#include "server/proxy/request/if_field.hpp"
#include "server/proxy/request/methods.hpp"
#include "server/proxy/request/target.hpp"

namespace fenceguard {
class ClaimKeys;
}

namespace fenceguard::proxy {

struct Operation {
  Method method;
  Target target;
  std::optional<Target> destination{};  // of a MOVE or COPY
  // In the order of their resources' names: none for a plain read, two where two resources are touched.
  std::vector<Claim> claims{};
  std::size_t own = 0;  // which claim is for target
  // The upstream is told to leave alone what is in a collection, and what stands at the destination: those
  // are resources of their own, which the request does not claim.
  bool is_alone = false;
  std::vector<IfPiece> conditions{};  // of its If field; empty: there is none

  [[nodiscard]] bool is_write() const noexcept { return method.kind != Method::Kind::read; }
};

struct Rejection {
  enum class Why { malformed, missing, not_signed };
  http::Response response;
  Why why = Why::malformed;
  std::optional<Claim> claim;          // that was not signed as it must be
  std::optional<Resource> resource{};  // for which the claim is missing
};

struct OperationRules {
  std::size_t resource_depth = 0;
  const ClaimKeys* keys =
      nullptr;  // claims must be signed with one of these; null: no signature is asked for
};

[[nodiscard]] std::variant<Operation, Rejection> parse_operation(const http::Request& head,
                                                                 const OperationRules& rules);

}  // namespace fenceguard::proxy
