#include "server/resp/replies/own_command.hpp"

#include <utility>

#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {

bool leads_elsewhere(std::string_view reply) noexcept {
  return reply.starts_with("-MOVED ") || reply.starts_with("-ASK ");
}

OwnCommand::OwnCommand(const RelayContext& context, OwnConnection& connection, Kind kind, Request request)
    : PendingReply{context, Channel::own, request.slot},
      connection_{connection},
      kind_{kind},
      counts_writes_{request.counts_writes},
      unclaimed_{std::move(request.unclaimed)},
      request_{request.bytes} {}

std::size_t OwnCommand::send(bool /*again*/) {
  auto& redis = context_.redis;
  redis.prepare(channel_, slot_, connection_.is_watching());
  if (!unclaimed_.empty()) {
    stage_ = Stage::question;
    redis.send(channel_, slot_, no_fence_call(unclaimed_, context_.options.keys, redis.is_cluster()), true);
    return request_.size();
  }
  // Redis counts for WAIT what this connection has written: what was said on another one counts from any
  // command on.
  if (counts_writes_) {
    stage_ = Stage::warm_up;
    redis.send(channel_, slot_, "*1\r\n$4\r\nPING\r\n", 1, false);
  }
  send_command();
  return request_.size();
}

void OwnCommand::send_command() {
  context_.redis.send(channel_, slot_, request_, 1, kind_ != Kind::watches);
}

PendingReply::Answer OwnCommand::replied(std::string_view reply) {
  const auto stage = std::exchange(stage_, Stage::command);
  if (stage == Stage::warm_up) return std::nullopt;
  if (stage == Stage::command) return end(reply);
  if (reply == ok_reply) {
    send_command();
    return std::nullopt;
  }
  if (const auto resource = unfenced_refusal(error_of(reply))) {
    context_.observer.missing(*resource);
    return refuse(unclaimed_text(*resource));
  }
  return end(reply);
}

std::string_view OwnCommand::end(std::string_view reply) {
  if (kind_ == Kind::watches && reply == ok_reply) connection_.begin_watch(slot_);
  if (!leads_elsewhere(reply)) return reply;
  // A script can answer with what it likes: its reply redirects no client.
  if (kind_ != Kind::runs_script && reply.starts_with("-MOVED "))
    context_.redis.redirect(slot_, error_of(reply));
  return refuse(keys_move);
}

PendingReply::Answer OwnCommand::lost(bool was_sent, std::string_view why) {
  return PendingReply::lost(was_sent && stage_ != Stage::question, why);
}

std::string_view OwnCommand::refuse(std::string_view error) {
  answer_.clear();
  add_error(answer_, error);
  return answer_;
}

}  // namespace fenceguard::resp
