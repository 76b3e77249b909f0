#include "server/resp/replies/shared_commands.hpp"

#include <utility>

#include "adapters/redis/wire/scripts.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

void report(RelayObserver& observer, const char* operation, const Claim& claim, const BatchResult& result,
            std::size_t count) {
  observer.ruled(operation, claim, result.verdict, result.highest, count);
  if (result.has_raised) observer.raised(claim);
}

}  // namespace

PlainCommand::PlainCommand(const RelayContext& context, int slot, std::string_view request, bool writes,
                           bool is_plain_read)
    : PendingReply{context, Channel::shared, slot},
      request_{request},
      kept_{context.redis.is_cluster() ? request : std::string_view{}},
      writes_{writes},
      is_plain_read_{is_plain_read} {}

std::size_t PlainCommand::send(bool again) {
  const auto request = again ? std::string_view{kept_} : std::exchange(request_, {});
  is_plain_read_ && !again ? context_.redis.send_read(slot_, request)
                           : context_.redis.send(channel_, slot_, request, 1, false);
  return request.size();
}

std::size_t ScriptReply::send(bool again) {
  if (!again) call_ = make_call(context_.redis.is_cluster());
  context_.redis.send(channel_, slot_, call_, again);
  return call_.rest.size();
}

PendingReply::Answer BatchReply::replied(std::string_view reply) {
  const auto result = batch_.end(reply, answer_);
  const auto& held = batch_.claim();
  if (result.kind == BatchResult::Kind::fault) return fail(result.fault);
  if (!held && result.kind == BatchResult::Kind::error) {
    if (const auto refused = unfenced_refusal(error_of(reply))) context_.observer.missing(*refused);
  }
  if (held && result.kind == BatchResult::Kind::ruled) {
    // A duplicate refuses its own sequence alone.
    if (result.verdict == Verdict::stale || result.verdict == Verdict::conflict)
      held->refuse(result.verdict, result.highest);
    report(context_.observer, "write", held->claim, result, batch_.count());
  }
  return answer_;
}

std::string_view BatchReply::fail(const Fault& fault) {
  if (batch_.claim()) context_.observer.failed("write", batch_.claim()->claim, fault, batch_.count());
  answer_.clear();
  for (std::size_t i = 0; i < batch_.count(); ++i) add_error(answer_, fault_text(fault));
  return answer_;
}

PendingReply::Answer ClaimAdvance::replied(std::string_view reply) {
  const auto result = advance_result(claim_->claim, reply);
  if (result.kind == BatchResult::Kind::fault) return fail(result.fault);
  if (result.kind != BatchResult::Kind::ruled) return reply;
  if (result.verdict != Verdict::admitted) claim_->refuse(result.verdict, result.highest);
  claims_.hold(database_, claim_);
  report(context_.observer, "advance", claim_->claim, result, 1);
  if (result.verdict == Verdict::admitted) return ok_reply;
  add_error(answer_, refusal_text(claim_->claim, result.verdict, result.highest));
  return answer_;
}

std::string_view ClaimAdvance::fail(const Fault& fault) {
  context_.observer.failed("advance", claim_->claim, fault, 1);
  return PendingReply::fail(fault);
}

ScriptCall FenceShow::make_call(bool is_cluster) {
  const auto& keys = context_.options.keys;
  ScriptCall call;
  call.script = &redis::scripts::look();
  add_bulk(call.rest, is_cluster ? "1" : "2");
  add_bulk(call.rest, keys.fence(resource_));
  if (!is_cluster) add_bulk(call.rest, keys.name_space());
  call.words = is_cluster ? 2 : 3;
  return call;
}

// Of {floor, token, holder, sequence, closed}: token, sequence and closed. Of {floor} alone: there is none.
PendingReply::Answer FenceShow::replied(std::string_view reply) {
  auto rest = reply;
  const auto whole = take_value(rest);
  if (!whole || whole->is_error()) {
    const auto result = result_of_error(resource_.name(), whole ? whole->text : "");
    return result.kind == BatchResult::Kind::fault ? fail(result.fault) : reply;
  }
  if (whole->elements < 5) return nil_array;
  rest = whole->inside;
  (void)take_value(rest);
  const auto token = take_value(rest);
  (void)take_value(rest);
  add_array(answer_, 3);
  if (token) answer_.append(token->bytes).append(rest);
  return answer_;
}

}  // namespace fenceguard::resp
