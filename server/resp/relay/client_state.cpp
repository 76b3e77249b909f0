#include "server/resp/relay/client_state.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "adapters/redis/wire/cluster.hpp"
#include "guard/claim_keys.hpp"
#include "guard/error.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

constexpr int settle_look_ms = 10;

}  // namespace

bool ClientState::answer_error(std::string_view text) {
  if (transaction) transaction->is_dirty = true;
  std::string bytes;
  add_error(bytes, text);
  return answer(bytes);
}

bool ClientState::send_alone(OwnCommand::Kind kind, OwnCommand::Request request) {
  if (!replies.is_quiet()) return false;
  const bool is_question = !request.unclaimed.empty();
  if (!is_question && request.slot >= 0 && own.is_watching_elsewhere(request.slot))
    return answer_error(crossslot_watched);
  replies.send(std::make_unique<OwnCommand>(context, own, kind, std::move(request)));
  return true;
}

bool ClientState::add_to_transaction(std::string_view request) {
  auto& work = transaction->work;
  if (work.commands.size() + request.size() > context.options.queue_bytes_max)
    return answer_error("ERR fenceguard: the transaction is larger than is relayed");
  work.commands.append(request);
  ++work.count;
  return answer("+QUEUED\r\n");
}

int ClientState::slot_of_fence(const Resource& resource) const {
  return context.redis.is_cluster() ? static_cast<int>(redis::slot_of(context.options.keys.fence(resource)))
                                    : -1;
}

bool ClientState::are_settled(const std::vector<HeldClaimPtr>& all) {
  const bool is_under_way = std::ranges::any_of(
      all, [&](const auto& held) { return context.redis.is_unsettled(login.database(), held->claim); });
  if (!is_under_way) return true;
  pause = Pause::settling;
  context.redis.sleep(settle_look_ms);
  return false;
}

std::string ClientState::known_refusal(const std::vector<HeldClaimPtr>& all) const {
  const auto refused = std::ranges::find_if(all, [](const auto& held) { return held->refusal.has_value(); });
  if (refused == all.end()) return {};
  const auto& held = **refused;
  context.observer.ruled("write", held.claim, *held.refusal, held.highest, 1);
  return refusal_text(held.claim, *held.refusal, held.highest);
}

std::string ClientState::objection_to_judging(const char* operation,
                                              const std::vector<HeldClaimPtr>& all) const {
  const auto& may_evict = context.options.may_evict;
  if (!may_evict || !*may_evict) return {};
  const Fault fault{
      FaultKind::unavailable,
      "by the maxmemory-policy of Redis fences may be evicted, or may have been: set noeviction, and run "
      "'fenceguard fence init' where /readyz still asks for it; nothing was written"};
  for (const auto& held : all) context.observer.failed(operation, held->claim, fault, 1);
  return fault_text(fault);
}

std::string ClientState::objection_to_signature(const char* operation, const SpokenClaim& spoken) const {
  const auto* keys = context.options.keys_required;
  if (keys == nullptr || keys->verify(spoken.claim, spoken.signature)) return {};
  context.observer.not_signed(operation, spoken.claim);
  return fmt::format(
      "UNSIGNED resource={}: a claim carries its signature, as granted with the lease, behind SIG",
      spoken.claim.resource.name());
}

}  // namespace fenceguard::resp
