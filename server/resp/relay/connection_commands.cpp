#include "server/resp/relay/connection_commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "adapters/redis/wire/cluster.hpp"
#include "guard/error.hpp"
#include "guard/support/text.hpp"
#include "server/resp/replies/own_command.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

constexpr std::string_view reset_reply = "+RESET\r\n";

std::string count_error(std::string_view name) {
  return fmt::format("ERR wrong number of arguments for '{}' command", name);
}

bool is_local_subcommand(std::string_view word) {
  constexpr std::array words{"SETNAME", "GETNAME", "SETINFO", "ID"};
  return std::ranges::any_of(words, [&](const char* one) { return equals_ignoring_case(word, one); });
}

}  // namespace

std::optional<ConnectionCommands::Name> ConnectionCommands::find(redis::Arguments words) noexcept {
  using enum Name;
  struct Row {
    std::string_view word;
    Name name;
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
      std::ranges::find_if(table, [&](const Row& row) { return equals_ignoring_case(row.word, words[0]); });
  if (found != std::end(table)) return found->name;
  if (words.size() > 1 && equals_ignoring_case(words[0], "CLIENT") && is_local_subcommand(words[1]))
    return client;
  return std::nullopt;
}

std::string ConnectionCommands::objection_to(Name name, redis::Arguments words) const {
  using enum Name;
  const bool is_login = name == auth || name == hello;
  const bool is_of_transaction =
      name == exec || name == discard || name == multi || name == watch || name == unwatch;
  if (name == quit || name == reset) return {};
  if (!is_login) {
    if (!state_.login.is_let_in()) return "NOAUTH Authentication required.";
    const auto& lost = state_.sidecar_claims.lost();
    if (!lost.empty() && name != fence_begin && name != select && name != client) return lost;
  }
  if (state_.transaction && !is_of_transaction)
    return fmt::format("ERR fenceguard: {} is not permitted inside MULTI", words[0]);
  if (!state_.sidecar_claims.empty() && (name == fence || name == fenced || name == unfence))
    return "ERR fenceguard: this sidecar holds the claims of its clients (--hold): a connection brings none "
           "of its own";
  return {};
}

bool ConnectionCommands::take(Name name, const Request& request) {
  using enum Name;
  const auto& words = request.words;
  switch (name) {
    case auth:
    case hello:
    case select:
      return take_login(name, words);
    case client:
      return take_client(words);
    case reset:
      return take_reset();
    case quit:
      return take_quit();
    case fence:
      return take_fence(words);
    case unfence:
      return take_unfence(words);
    case fences:
      return list_claims();
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
    case subscribe:
      return state_.replies.is_quiet() && take_subscribed(request);
    case fenced:
      break;
  }
  return true;
}

bool ConnectionCommands::take_login(Name name, redis::Arguments words) {
  if (!state_.replies.is_quiet()) return false;
  auto& login = state_.login;
  const auto answer = name == Name::auth    ? login.auth(words)
                      : name == Name::hello ? login.hello(words, client_name_)
                                            : login.select(words);
  if (answer) return state_.answer(*answer);
  // It may have come within the call.
  if (login.is_binding()) state_.pause = ClientState::Pause::binding;
  return true;
}

bool ConnectionCommands::bound(std::string_view error, bool needs_password) {
  auto& login = state_.login;
  if (state_.pause == ClientState::Pause::binding) state_.pause = ClientState::Pause::none;
  const bool is_resetting = login.is_resetting();
  const auto text = login.bound(error, needs_password);
  if (text.empty()) return login.is_bound();
  const bool is_bound = !text.starts_with('-');
  if (is_bound) {
    state_.own.lose_watch();
    state_.own.close();
  }
  state_.answer(text);
  // After RESET the client expects to be unauthenticated.
  if (!is_bound && is_resetting) state_.end();
  return is_bound;
}

bool ConnectionCommands::take_client(redis::Arguments words) {
  std::string text{ok_reply};
  if (equals_ignoring_case(words[1], "SETNAME")) {
    if (words.size() != 3) return state_.answer_error(count_error("client|setname"));
    if (!is_visible_ascii(words[2]))
      return state_.answer_error("ERR Client names cannot contain spaces, newlines or special characters.");
    client_name_ = words[2];
  } else if (equals_ignoring_case(words[1], "GETNAME")) {
    text.clear();
    client_name_.empty() ? void(text = nil_bulk) : add_bulk(text, client_name_);
  } else if (equals_ignoring_case(words[1], "ID")) {
    text.clear();
    add_integer(text, std::to_string(state_.context.client.connection_number()));
  }
  return state_.answer(text);
}

bool ConnectionCommands::take_reset() {
  if (!state_.replies.is_quiet()) return false;
  state_.transaction = nullptr;
  state_.claims.clear();
  state_.sidecar_claims.give_to(state_.claims, state_.context.options.database);
  state_.own.reset();
  client_name_.clear();
  if (!state_.login.reset(std::string{reset_reply})) return state_.answer(reset_reply);
  // It may have come within the call.
  if (state_.login.is_binding()) state_.pause = ClientState::Pause::binding;
  return true;
}

bool ConnectionCommands::take_quit() {
  if (!state_.replies.is_quiet()) return false;
  state_.answer(ok_reply);
  state_.end();
  return true;
}

bool ConnectionCommands::take_fence(redis::Arguments words) {
  auto& claims = state_.claims;
  try {
    const auto spoken = parse_fence(words);
    if (const auto text = state_.objection_to_signature("advance", spoken); !text.empty())
      return state_.answer_error(text);
    const int database = state_.login.database();
    const bool is_renewed = claims.find(database, spoken.claim.resource.name()) != nullptr;
    if (claims.size() >= Claims::most && !is_renewed)
      return state_.answer_error(
          fmt::format("ERR fenceguard: a connection holds up to {} claims", Claims::most));
    const int slot = state_.slot_of_fence(spoken.claim.resource);
    if (!state_.replies.may_send(slot)) return false;
    auto claim = std::make_shared<HeldClaim>(spoken.claim);
    if (const auto text = state_.objection_to_judging("advance", {claim}); !text.empty())
      return state_.answer_error(text);
    if (!state_.are_settled({claim})) return false;
    state_.replies.send(
        std::make_unique<ClaimAdvance>(state_.context, slot, std::move(claim), claims, database));
    return true;
  } catch (const InvalidInput& error) {
    return state_.answer_error(fmt::format("ERR fenceguard: {}", error.what()));
  }
}

bool ConnectionCommands::take_unfence(redis::Arguments words) {
  const int database = state_.login.database();
  if (words.size() > 2) return state_.answer_error("ERR fenceguard: write UNFENCE [RESOURCE]");
  if (words.size() == 1) {
    state_.claims.drop_database(database);
  } else if (!state_.claims.drop(database, words[1])) {
    return state_.answer_error(
        fmt::format("NOFENCE resource={}: this connection holds no claim to it", words[1].substr(0, 512)));
  }
  return state_.answer(ok_reply);
}

bool ConnectionCommands::list_claims() {
  const auto all = state_.claims.list(state_.login.database());
  std::string text;
  add_array(text, all.size());
  for (const auto& held : all) {
    add_array(text, 2);
    add_bulk(text, held->claim.resource.name());
    add_bulk(text, to_string(held->claim.token));
  }
  return state_.answer(text);
}

bool ConnectionCommands::take_show(redis::Arguments words) {
  if (words.size() != 2) return state_.answer_error("ERR fenceguard: write FENCE.SHOW RESOURCE");
  if (const auto objection = Resource::objection(words[1]); !objection.empty())
    return state_.answer_error(fmt::format("ERR fenceguard: {}", objection));
  if (const auto text = redis::objection_to_resource(words[1]); !text.empty())
    return state_.answer_error(fmt::format("ERR fenceguard: {}", text));
  Resource resource{std::string{words[1]}};
  const int slot = state_.slot_of_fence(resource);
  if (!state_.replies.may_send(slot)) return false;
  state_.replies.send(std::make_unique<FenceShow>(state_.context, slot, std::move(resource)));
  return true;
}

bool ConnectionCommands::take_begin(redis::Arguments words) {
  const auto error = state_.sidecar_claims.begin(words, state_.claims, state_.context.options.database);
  return error.empty() ? state_.answer(ok_reply) : state_.answer_error(error);
}

bool ConnectionCommands::take_multi(redis::Arguments words) {
  if (words.size() != 1) return state_.answer_error(count_error("multi"));
  // It does not make EXEC fail.
  if (state_.transaction) return state_.answer("-ERR MULTI calls can not be nested\r\n");
  state_.transaction = std::make_unique<QueuedTransaction>();
  state_.transaction->number = ++transactions_seen_;
  return state_.answer(ok_reply);
}

bool ConnectionCommands::take_exec(redis::Arguments words) {
  if (words.size() == 1 && !state_.transaction) return state_.answer_error("ERR EXEC without MULTI");
  if (!state_.replies.is_quiet()) return false;
  if (words.size() != 1) {
    state_.transaction = nullptr;
    state_.own.drop_watch();
    return state_.answer_error(
        "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command");
  }
  if (!state_.are_settled(state_.transaction->work.claims)) return false;
  return end_exec(*std::exchange(state_.transaction, nullptr));
}

bool ConnectionCommands::end_exec(QueuedTransaction& transaction) {
  auto& work = transaction.work;
  auto& own = state_.own;
  const bool has_lost_watch = own.take_lost_watch();
  auto refusal = transaction.is_dirty
                     ? std::string{"EXECABORT Transaction discarded because of previous errors."}
                     : state_.known_refusal(work.claims);
  const bool is_judged = !work.claims.empty() || !work.unclaimed.empty();
  if (refusal.empty() && is_judged) refusal = state_.objection_to_judging("write", work.claims);
  const bool is_over = !refusal.empty() || has_lost_watch || (work.count == 0 && !own.is_watching());
  if (is_over) {
    own.drop_watch();
    return refusal.empty() ? state_.answer(has_lost_watch ? nil_array : "*0\r\n")
                           : state_.answer_error(refusal);
  }
  work.is_watching = own.is_watching();
  if (work.is_watching && work.slot < 0) work.slot = own.watched_slot();
  if (own.is_watching_elsewhere(work.slot)) {
    own.drop_watch();
    return state_.answer_error(crossslot_watched);
  }
  state_.replies.send(
      std::make_unique<WatchedTransaction>(state_.context, own, std::move(work), Channel::own));
  return true;
}

bool ConnectionCommands::take_discard(redis::Arguments words) {
  if (words.size() != 1) return state_.answer_error(count_error("discard"));
  if (!state_.transaction) return state_.answer_error("ERR DISCARD without MULTI");
  if (!state_.replies.is_quiet()) return false;
  state_.transaction = nullptr;
  state_.own.drop_watch();
  return state_.answer(ok_reply);
}

bool ConnectionCommands::take_watch(const Request& request) {
  if (state_.transaction) return state_.answer("-ERR WATCH inside MULTI is not allowed\r\n");
  CommandKeys keys;
  if (const auto* facts = state_.context.options.commands->find(request.words)) {
    const auto text = resp::objection_to(*facts, request.words, {Way::own}, state_.destination(), keys);
    if (!text.empty()) return state_.answer_error(text);
  }
  return state_.send_alone(OwnCommand::Kind::watches, {.slot = keys.slot, .bytes = request.bytes});
}

bool ConnectionCommands::take_unwatch(const Request& request) {
  if (request.words.size() != 1) return state_.answer_error(count_error("unwatch"));
  // EXEC has looked at what is watched when it comes to it.
  if (state_.transaction) return state_.add_to_transaction(request.bytes);
  if (!state_.replies.is_quiet()) return false;
  state_.own.drop_watch();
  return state_.answer(ok_reply);
}

bool ConnectionCommands::take_subscribed(const Request& request) {
  const auto& words = request.words;
  auto& subscriptions = state_.own.subscriptions();
  auto& redis = state_.context.redis;
  if (Subscriptions::is_word(words[0])) {
    std::string refusal;
    if (words.size() == 1 && !Subscriptions::is_end(words[0])) {
      refusal = count_error(words[0]);
    } else if (redis.is_cluster() && Subscriptions::is_of_shards(words[0])) {
      refusal = shard_channels;
    } else if (!subscriptions.has_room(words)) {
      refusal = fmt::format("ERR fenceguard: a connection subscribes to up to {} names, of {} bytes in all",
                            Subscriptions::names_max, Subscriptions::bytes_max);
    }
    // Not ahead of confirmations that are on their way.
    if (!refusal.empty()) return !subscriptions.is_awaiting() && state_.answer_error(refusal);
    if (!subscriptions.can_send(words)) return false;
    subscriptions.sent(words);
  } else if (equals_ignoring_case(words[0], "PING") && words.size() <= 2) {
    subscriptions.sent_other();
  } else {
    if (subscriptions.is_awaiting()) return false;
    if (equals_ignoring_case(words[0], "QUIT")) return take_quit();
    if (equals_ignoring_case(words[0], "RESET")) return take_reset();
    return state_.answer_error(fmt::format(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are "
        "allowed in this context",
        words[0].substr(0, 128)));
  }
  redis.prepare(Channel::own, -1, true);
  redis.send(Channel::own, -1, request.bytes, 1, true);
  return true;
}

}  // namespace fenceguard::resp
