#pragma once

// ClientState: what one client's connection is, claims, has queued and awaits: what its relay and its
// connection commands both work on.
//
// Not thread-safe.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/resp/command/claims.hpp"
#include "server/resp/relay/login.hpp"
#include "server/resp/relay/sidecar_claims.hpp"
#include "server/resp/replies/own_command.hpp"
#include "server/resp/replies/relay_options.hpp"
#include "server/resp/replies/reply_queue.hpp"
#include "server/resp/replies/watched_transaction.hpp"

namespace fenceguard::resp {

struct ClientState {
  // For what no request is taken: connections as another user or in another database (the answer to AUTH and
  // its kin comes with them); what Redis says of a command; the end of an earlier write under the same claim,
  // whose client is gone.
  enum class Pause : std::uint8_t { none, binding, learning, settling };

  explicit ClientState(const RelayContext& relay_context) : context{relay_context} {}

  // Always true: the request is taken.
  bool answer(std::string_view bytes) {
    replies.answer(bytes);
    return true;
  }
  // A refused command of a transaction makes all of it fail, as in Redis.
  bool answer_error(std::string_view text);
  void end() {
    is_ending = true;
    context.client.end();
  }
  // On the client's own connection, where nothing else is under way. False: not yet.
  [[nodiscard]] bool send_alone(OwnCommand::Kind kind, OwnCommand::Request request);
  // Always true: the client is told QUEUED, or that it is too large.
  bool add_to_transaction(std::string_view request);

  [[nodiscard]] Destination destination() const { return {context.options.keys, context.redis.is_cluster()}; }
  // Of a cluster; else negative.
  [[nodiscard]] int slot_of_fence(const Resource& resource) const;
  // False: not yet, because an earlier write under one of them is still under way.
  [[nodiscard]] bool are_settled(const std::vector<HeldClaimPtr>& claims);
  // From memory: the fence has refused one of them. The error, or empty.
  [[nodiscard]] std::string known_refusal(const std::vector<HeldClaimPtr>& claims) const;
  // While fences may be evicted, no verdict is to be trusted. Likewise.
  [[nodiscard]] std::string objection_to_judging(const char* operation,
                                                 const std::vector<HeldClaimPtr>& claims) const;
  [[nodiscard]] std::string objection_to_signature(const char* operation, const SpokenClaim& spoken) const;

  const RelayContext context;
  SidecarClaims sidecar_claims;
  Claims claims;
  Login login{context};
  OwnConnection own{context.redis};
  ReplyQueue replies{context};
  std::unique_ptr<QueuedTransaction> transaction;  // between MULTI and EXEC
  Pause pause = Pause::none;
  bool is_ending = false;  // no request is taken any more
};

}  // namespace fenceguard::resp
