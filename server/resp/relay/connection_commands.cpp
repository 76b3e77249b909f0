#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "adapters/redis/wire/cluster.hpp"
#include "adapters/redis/wire/scripts.hpp"
#include "guard/error.hpp"
#include "guard/support/text.hpp"
#include "server/resp/relay/relay.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {

enum class Relay::Word : std::uint8_t {
  fence,
  fenced,
  unfence,
  fences,
  fence_show,
  fence_begin,
  reset,
  quit,
  auth,
  hello,
  select,
  multi,
  exec,
  discard,
  watch,
  unwatch,
  client,
  subscribe
};

namespace {

bool is_local_client_word(std::string_view word) {
  constexpr std::array words{"SETNAME", "GETNAME", "SETINFO", "ID"};
  return std::ranges::any_of(words, [&](const char* one) { return equals_ignoring_case(word, one); });
}

}  // namespace

std::optional<Relay::Word> Relay::word_of(redis::Arguments words) noexcept {
  using enum Word;
  struct Row {
    std::string_view name;
    Word word;
  };
  constexpr Row table[] = {{"FENCE", fence},
                           {"FENCED", fenced},
                           {"UNFENCE", unfence},
                           {"FENCES", fences},
                           {"FENCE.SHOW", fence_show},
                           {"FENCE.BEGIN", fence_begin},
                           {"RESET", reset},
                           {"QUIT", quit},
                           {"AUTH", auth},
                           {"HELLO", hello},
                           {"SELECT", select},
                           {"MULTI", multi},
                           {"EXEC", exec},
                           {"DISCARD", discard},
                           {"WATCH", watch},
                           {"UNWATCH", unwatch},
                           {"SUBSCRIBE", subscribe},
                           {"UNSUBSCRIBE", subscribe},
                           {"PSUBSCRIBE", subscribe},
                           {"SSUBSCRIBE", subscribe},
                           {"SUNSUBSCRIBE", subscribe},
                           {"PUNSUBSCRIBE", subscribe}};
  const auto found =
      std::ranges::find_if(table, [&](const Row& row) { return equals_ignoring_case(row.name, words[0]); });
  if (found != std::end(table)) return found->word;
  if (equals_ignoring_case(words[0], "CLIENT") && words.size() > 1 && is_local_client_word(words[1]))
    return client;
  return std::nullopt;
}

bool Relay::take_word(Word word, const Request& request) {
  using enum Word;
  const auto& words = request.words;
  if (word == auth || word == hello) return take_login(word, words);
  if (word == quit) return take_quit();
  if (word == reset) return take_reset();
  if (!login_.is_let_in()) return answer_error("NOAUTH Authentication required.");
  if (!lost_.empty() && word != fence_begin && word != select && word != client) return answer_error(lost_);
  if (queue_ && word != exec && word != discard && word != multi && word != watch && word != unwatch)
    return answer_error(fmt::format("ERR fenceguard: {} is not permitted inside MULTI", words[0]));
  if (!held_.empty() && (word == fence || word == fenced || word == unfence))
    return answer_error(
        "ERR fenceguard: this sidecar holds the claims of its clients (--hold): a connection brings none "
        "of its own");
  switch (word) {
    case fence:
      return take_fence(words);
    case fenced:
      return take_fenced(request);
    case unfence:
      return take_unfence(words);
    case fences:
      list_claims();
      return true;
    case fence_show:
      return take_show(words);
    case fence_begin:
      return take_begin(words);
    case multi:
      return take_multi(words);
    case exec:
      return take_exec(words);
    case discard:
      return take_discard(words);
    case watch:
      return take_watch(request);
    case unwatch:
      return take_unwatch(request);
    case client:
      return take_client(words);
    case subscribe:
      return is_quiet() && take_subscribed(request);
    default:
      return take_login(word, words);
  }
}

bool Relay::take_fence(redis::Arguments words) {
  try {
    const auto spoken = parse_fence(words);
    if (const auto text = objection_to_signature("advance", spoken); !text.empty()) return answer_error(text);
    const bool is_renewed = claims_.find(login_.database(), spoken.claim.resource.name()) != nullptr;
    if (claims_.size() >= Claims::most && !is_renewed)
      return answer_error(fmt::format("ERR fenceguard: a connection holds up to {} claims", Claims::most));
    PendingReply reply;
    reply.kind = PendingReply::Kind::advance;
    if (port_.is_cluster())
      reply.slot = static_cast<int>(redis::slot_of(options_.keys.fence(spoken.claim.resource)));
    if (!may_send(reply.slot)) return false;
    reply.claim = std::make_shared<HeldClaim>(spoken.claim);
    if (const auto text = objection_to_judging("advance", {reply.claim}); !text.empty())
      return answer_error(text);
    if (!are_settled({reply.claim})) return false;
    send_run();
    reply.call = advance_call(spoken.claim, options_.keys, port_.is_cluster(), options_.jump_max);
    // What follows must not be judged before it.
    is_waiting_ = true;
    owed_.send(std::move(reply));
    return true;
  } catch (const InvalidInput& error) {
    return answer_error(fmt::format("ERR fenceguard: {}", error.what()));
  }
}

// A claim that was refused is held, so that its writes are told why.
void Relay::end_fence(const HeldClaimPtr& claim, const BatchResult& result) {
  is_waiting_ = false;
  if (result.kind != BatchResult::Kind::ruled) return;
  if (result.verdict != Verdict::admitted) {
    claim->refusal = result.verdict;
    claim->highest = result.highest;
  }
  claims_.hold(login_.database(), claim);
  has_fenced_ = true;
}

bool Relay::take_fenced(const Request& request) {
  try {
    const auto spoken = parse_fenced(request.words);
    if (word_of(spoken.command))
      return answer_error(fmt::format("ERR fenceguard: {} cannot be said under FENCED", spoken.command[0]));
    const auto* facts = options_.commands->find(spoken.command);
    std::string bytes;
    redis::encode(spoken.command, bytes);
    const Request inner{spoken.command, bytes};
    if (facts == nullptr) return take_unknown(inner);
    has_learned_ = false;
    if (const auto text = objection_to_signature("write", spoken); !text.empty()) return answer_error(text);
    return take_under(*facts, inner, std::make_shared<HeldClaim>(spoken.claim));
  } catch (const InvalidInput& error) {
    return answer_error(fmt::format("ERR fenceguard: {}", error.what()));
  }
}

// One command under a claim of its own.
bool Relay::take_under(const Facts& facts, const Request& request, HeldClaimPtr claim) {
  const auto rule = rule_for(facts, request.words, options_.permissions);
  const auto text = objection_under(facts, request.words, rule, claim->claim.resource.name());
  if (!text.empty()) return answer_error(text);
  return take_judged(facts, request, {.claims = {std::move(claim)}}, rule.way == Way::script);
}

bool Relay::take_unfence(redis::Arguments words) {
  if (words.size() > 2) return answer_error("ERR fenceguard: write UNFENCE [RESOURCE]");
  if (words.size() == 1) {
    claims_.drop_database(login_.database());
  } else if (!claims_.drop(login_.database(), words[1])) {
    return answer_error(
        fmt::format("NOFENCE resource={}: this connection holds no claim to it", words[1].substr(0, 512)));
  }
  answer(ok_reply);
  return true;
}

void Relay::list_claims() {
  const auto all = claims_.list(login_.database());
  std::string text;
  add_array(text, all.size());
  for (const auto& held : all) {
    add_array(text, 2);
    add_bulk(text, held->claim.resource.name());
    add_bulk(text, to_string(held->claim.token));
  }
  answer(text);
}

bool Relay::take_show(redis::Arguments words) {
  if (words.size() != 2) return answer_error("ERR fenceguard: write FENCE.SHOW RESOURCE");
  if (const auto objection = Resource::objection(words[1]); !objection.empty())
    return answer_error(fmt::format("ERR fenceguard: {}", objection));
  if (const auto text = redis::objection_to_resource(words[1]); !text.empty())
    return answer_error(fmt::format("ERR fenceguard: {}", text));
  PendingReply reply;
  reply.kind = PendingReply::Kind::show;
  reply.claim = std::make_shared<HeldClaim>(Claim{Resource{std::string{words[1]}}, Token{1}, Holder{}, {}});
  const auto fence_key = options_.keys.fence(reply.claim->claim.resource);
  const bool is_cluster = port_.is_cluster();
  if (is_cluster) reply.slot = static_cast<int>(redis::slot_of(fence_key));
  if (!may_send(reply.slot)) return false;
  send_run();
  reply.call.script = &redis::scripts::look();
  add_bulk(reply.call.rest, is_cluster ? "1" : "2");
  add_bulk(reply.call.rest, fence_key);
  if (!is_cluster) add_bulk(reply.call.rest, options_.keys.name_space());
  reply.call.words = is_cluster ? 2 : 3;
  owed_.send(std::move(reply));
  return true;
}

// The program says that nothing is in its memory that it read before this connection's tenure; or before that
// of a token, where its driver says it by itself on each connection.
bool Relay::take_begin(redis::Arguments words) {
  if (words.size() > 2) return answer_error("ERR fenceguard: write FENCE.BEGIN [TOKEN]");
  if (held_.empty() && reserved_.empty())
    return answer_error(
        "ERR fenceguard: FENCE.BEGIN is for a sidecar that holds the claims of its clients (--hold); here a "
        "connection says FENCE");
  if (words.size() == 2) {
    const auto token_of = [](const Claim& claim) { return claim.token; };
    const auto present = std::ranges::max(held_.empty() ? reserved_ : held_, {}, token_of).token;
    if (Token::parse(words[1]) != present) {
      const auto text = fmt::format(
          "LOST the lease of token {} is over, and this connection's has {}; start again from the read, "
          "and say FENCE.BEGIN with that",
          words[1].substr(0, 20), to_string(present));
      // Whoever was let in because its program is young enough says that its work is not.
      if (lost_.empty()) lost_ = text;
      return answer_error(text);
    }
  }
  lost_.clear();
  if (!reserved_.empty()) hold(std::exchange(reserved_, {}));
  answer(ok_reply);
  return true;
}

bool Relay::take_multi(redis::Arguments words) {
  if (words.size() != 1) return answer_error("ERR wrong number of arguments for 'multi' command");
  std::string text{ok_reply};
  if (queue_) {
    text.clear();
    add_error(text, "ERR MULTI calls can not be nested");
  } else {
    queue_ = std::make_unique<Queue>();
    queue_->number = ++queues_seen_;
  }
  answer(text);
  return true;
}

bool Relay::take_exec(redis::Arguments words) {
  if (words.size() == 1 && !queue_) return answer_error("ERR EXEC without MULTI");
  if (!is_quiet()) return false;
  if (words.size() != 1) {
    queue_ = nullptr;
    drop_watch();
    return answer_error(
        "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command");
  }
  if (!are_settled(queue_->work.claims)) return false;
  const auto queue = std::exchange(queue_, nullptr);
  const bool has_lost_watch = std::exchange(has_lost_watch_, false);
  auto refusal = queue->is_dirty ? std::string{"EXECABORT Transaction discarded because of previous errors."}
                                 : known_refusal(queue->work.claims);
  const bool is_judged = !queue->work.claims.empty() || !queue->work.unclaimed.empty();
  if (refusal.empty() && is_judged) refusal = objection_to_judging("write", queue->work.claims);
  const bool is_over = !refusal.empty() || has_lost_watch || (queue->work.count == 0 && !is_watching_);
  if (!is_over) {
    queue->work.is_watching = is_watching_;
    if (is_watching_ && queue->work.slot < 0) queue->work.slot = watched_slot_;
    if (is_watching_ && port_.is_cluster() && queue->work.slot != watched_slot_) {
      drop_watch();
      return answer_error("CROSSSLOT keys of another slot are watched");
    }
    return begin_transaction(std::move(queue->work), Channel::own);
  }
  drop_watch();
  if (!refusal.empty()) return answer_error(refusal);
  answer(has_lost_watch ? nil_array : "*0\r\n");
  return true;
}

bool Relay::take_discard(redis::Arguments words) {
  if (words.size() != 1) return answer_error("ERR wrong number of arguments for 'discard' command");
  if (!queue_) return answer_error("ERR DISCARD without MULTI");
  if (!is_quiet()) return false;
  queue_ = nullptr;
  drop_watch();
  answer(ok_reply);
  return true;
}

bool Relay::take_watch(const Request& request) {
  if (queue_) {
    answer("-ERR WATCH inside MULTI is not allowed\r\n");
    return true;
  }
  if (const auto* facts = options_.commands->find(request.words)) {
    if (const auto text = objection_to(*facts, request.words, {Way::own}); !text.empty())
      return answer_error(text);
  }
  return pass_alone(request, Alone::watches);
}

bool Relay::take_unwatch(const Request& request) {
  if (request.words.size() != 1) return answer_error("ERR wrong number of arguments for 'unwatch' command");
  if (queue_) {
    // EXEC has looked at what is watched when it comes to it.
    return queue_bytes(request.bytes);
  }
  if (!is_quiet()) return false;
  drop_watch();
  answer(ok_reply);
  return true;
}

// The connection ends with what is watched on it: a reply is not waited for.
void Relay::drop_watch() {
  has_lost_watch_ = false;
  if (std::exchange(is_watching_, false)) port_.close(Channel::own);
}

bool Relay::take_login(Word word, redis::Arguments words) {
  if (queue_) return answer_error(fmt::format("ERR fenceguard: {} is not permitted inside MULTI", words[0]));
  if (!is_quiet()) return false;
  const auto answer = word == Word::auth    ? login_.auth(words)
                      : word == Word::hello ? login_.hello(words, client_name_)
                                            : login_.select(words);
  if (answer) {
    port_.answer(*answer);
  } else {
    // It may have come within the call.
    is_waiting_ = login_.is_binding();
  }
  return true;
}

bool Relay::take_client(redis::Arguments words) {
  std::string text{ok_reply};
  if (equals_ignoring_case(words[1], "SETNAME")) {
    if (words.size() != 3) return answer_error("ERR wrong number of arguments for 'client|setname' command");
    if (!std::ranges::all_of(words[2], [](char c) { return c >= '!' && c <= '~'; }))
      return answer_error("ERR Client names cannot contain spaces, newlines or special characters.");
    client_name_ = words[2];
  } else if (equals_ignoring_case(words[1], "GETNAME")) {
    text.clear();
    client_name_.empty() ? void(text = nil_bulk) : add_bulk(text, client_name_);
  } else if (equals_ignoring_case(words[1], "ID")) {
    text.clear();
    add_integer(text, std::to_string(port_.connection_number()));
  }
  answer(text);
  return true;
}

bool Relay::take_subscribed(const Request& request) {
  const auto& words = request.words;
  if (Subscriptions::is_word(words[0])) {
    std::string refusal;
    if (words.size() == 1 && !Subscriptions::is_end(words[0])) {
      refusal = fmt::format("ERR wrong number of arguments for '{}' command", words[0]);
    } else if (port_.is_cluster() && Subscriptions::is_of_shards(words[0])) {
      refusal = "ERR fenceguard: the channels of a cluster's shards are not relayed";
    } else if (!subscriptions_.has_room(words)) {
      refusal = fmt::format("ERR fenceguard: a connection subscribes to up to {} names, of {} bytes in all",
                            Subscriptions::names_max, Subscriptions::bytes_max);
    }
    // Not ahead of confirmations that are on their way.
    if (!refusal.empty()) return !subscriptions_.is_awaiting() && answer_error(refusal);
    if (!subscriptions_.can_send(words)) return false;
    subscriptions_.sent(words);
  } else if (equals_ignoring_case(words[0], "PING") && words.size() <= 2) {
    subscriptions_.sent_other();
  } else {
    if (subscriptions_.is_awaiting()) return false;
    if (equals_ignoring_case(words[0], "QUIT")) return take_word(Word::quit, request);
    if (equals_ignoring_case(words[0], "RESET")) return take_reset();
    return answer_error(fmt::format(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are "
        "allowed in this context",
        words[0].substr(0, 128)));
  }
  port_.prepare(Channel::own, -1, true);
  port_.send(Channel::own, -1, request.bytes, 1, true);
  return true;
}

bool Relay::take_reset() {
  if (!is_quiet()) return false;
  queue_ = nullptr;
  claims_.clear();
  take_held_claims();
  subscriptions_.clear();
  client_name_.clear();
  is_watching_ = has_lost_watch_ = false;
  port_.close(Channel::own);
  port_.close(Channel::spare);
  constexpr std::string_view done = "+RESET\r\n";
  if (login_.reset(std::string{done})) {
    // It may have come within the call.
    is_waiting_ = login_.is_binding();
  } else {
    port_.answer(done);
  }
  return true;
}

bool Relay::take_quit() {
  if (!is_quiet()) return false;
  port_.answer(ok_reply);
  is_ending_ = true;
  port_.end();
  return true;
}

}  // namespace fenceguard::resp
