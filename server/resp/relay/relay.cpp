#include "server/resp/relay/relay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "guard/error.hpp"
#include "guard/support/text.hpp"
#include "server/resp/wire/request_reader.hpp"

namespace fenceguard::resp {
namespace {

// The first line of a request of HTTP, or one of its fields: what a web page has its browser send here. Redis
// ends such a connection as well.
bool is_cross_protocol(std::string_view name) noexcept {
  return equals_ignoring_case(name, "POST") || equals_ignoring_case(name, "Host:");
}

// The claims that these requests bring along, for every database that they may be for.
template <class Add>
void add_brought(std::string_view requests, int database, Add add) {
  std::set<int> databases{database};
  std::vector<Claim> claims;
  RequestReader reader;
  for (auto outcome = reader.read(requests, {});
       outcome == RequestReader::Outcome::whole || outcome == RequestReader::Outcome::nothing;
       outcome = reader.read(requests, {})) {
    if (outcome == RequestReader::Outcome::whole) {
      const auto& words = reader.words();
      try {
        if (equals_ignoring_case(words[0], "FENCE")) claims.push_back(parse_fence(words).claim);
        if (equals_ignoring_case(words[0], "FENCED")) claims.push_back(parse_fenced(words).claim);
      } catch (const InvalidInput&) {
        // It will be refused.
      }
      if (equals_ignoring_case(words[0], "SELECT") && words.size() == 2)
        if (const auto number = parse_decimal(words[1])) databases.insert(static_cast<int>(*number));
    }
    requests.remove_prefix(reader.size());
  }
  for (const auto& claim : claims)
    for (const int each : databases) add(each, claim);
}

}  // namespace

bool Relay::is_idle() const noexcept {
  return state_.replies.empty() && state_.pause == ClientState::Pause::none && !state_.transaction &&
         !state_.own.is_watching() && !state_.own.is_subscribed();
}

bool Relay::may_end() const noexcept {
  return is_idle() || state_.own.is_subscribed() || state_.replies.may_be_dropped();
}

bool Relay::is_answering() const noexcept {
  const auto& replies = state_.replies;
  return (!replies.empty() && !replies.awaits_others()) || state_.pause != ClientState::Pause::none ||
         state_.login.is_binding();
}

bool Relay::is_held() const noexcept {
  const auto& login = state_.login;
  return state_.is_ending || state_.pause != ClientState::Pause::none || state_.replies.is_full() ||
         state_.own.subscriptions().awaited() >= state_.context.options.pending_max ||
         (!login.is_bound() && login.is_binding());
}

std::size_t Relay::pending() const noexcept {
  const auto size = state_.replies.size();
  return size == 0 && state_.pause != ClientState::Pause::none ? 1 : size;
}

std::vector<UnsettledClaims::Key> Relay::claims_under_way(std::string_view unread) const {
  std::vector<UnsettledClaims::Key> keys;
  if (is_idle() && unread.empty()) return keys;
  const auto add = [&keys](int database, const Claim& claim) {
    keys.emplace_back(database, claim.resource.name(), claim.token.value());
  };
  const int present = state_.login.database();
  for (const auto& held : state_.replies.claims_under_way()) add(present, held->claim);
  for (const auto& [database, held] : state_.claims.list_all()) add(database, held->claim);
  add_brought(unread, present, add);
  if (!unread.empty())
    for (const auto& claim : state_.sidecar_claims.reserved()) add(state_.context.options.database, claim);
  return keys;
}

void Relay::hold(std::vector<Claim> claims) {
  state_.sidecar_claims.hold(std::move(claims));
  state_.sidecar_claims.give_to(state_.claims, state_.context.options.database);
}

void Relay::hold_until_begun(std::vector<Claim> claims, std::string_view why) {
  state_.sidecar_claims.hold_until_begun(std::move(claims), why);
}

// What others do is not waited for.
void Relay::lose_claims() {
  if (state_.is_ending) return;
  flush();
  state_.is_ending = is_broken_off_ = true;
  if (!is_answering()) return state_.end();
  end_broken_off();
}

void Relay::break_off(std::string_view why) {
  if (state_.is_ending) return;
  state_.is_ending = is_broken_off_ = true;
  (void)state_.answer_error(fmt::format("ERR {}", why));
  end_broken_off();
}

void Relay::end_broken_off() {
  if (is_broken_off_ && state_.replies.empty() && state_.pause == ClientState::Pause::none) state_.end();
}

bool Relay::take(redis::Arguments words, std::string_view bytes) {
  if (state_.is_ending) return true;
  if (is_held()) return false;
  state_.replies.stop_waiting();
  if (is_cross_protocol(words[0])) {
    state_.end();
    return true;
  }
  if (!state_.login.is_bound() && !bind()) return false;
  if (!binding_fault_.empty())
    return state_.answer_error(fmt::format("UNAVAILABLE {}", std::exchange(binding_fault_, {})));
  const Request request{words, bytes};
  return state_.own.is_subscribed() ? connection_commands_.take_subscribed(request) : take_command(request);
}

// False: not yet.
bool Relay::bind() {
  if (!binding_fault_.empty()) return true;
  state_.login.begin_binding();
  // It may have come within the call.
  return !state_.login.is_binding();
}

bool Relay::take_command(const Request& request) {
  const auto* facts = state_.context.options.commands->find(request.words);
  if (facts == nullptr || (!facts->reads && !facts->writes)) {
    if (const auto name = ConnectionCommands::find(request.words)) {
      const auto text = connection_commands_.objection_to(*name, request.words);
      if (!text.empty()) return state_.answer_error(text);
      return *name == ConnectionCommands::Name::fenced ? take_fenced(request)
                                                       : connection_commands_.take(*name, request);
    }
  }
  if (!state_.login.is_let_in()) return state_.answer_error("NOAUTH Authentication required.");
  if (const auto& lost = state_.sidecar_claims.lost(); !lost.empty()) return state_.answer_error(lost);
  return facts == nullptr ? take_unknown(request) : take_known(*facts, request);
}

bool Relay::take_known(const Facts& facts, const Request& request) {
  using Kind = OwnCommand::Kind;
  has_learned_ = false;
  const auto& permissions = state_.context.options.permissions;
  const auto rule = rule_for(facts, request.words, permissions);
  auto text = objection_to(facts, request.words, rule, state_.destination(), keys_);
  if (text.empty() && permissions.unfenced == Unfenced::refuse) {
    text = objection_to_unclaimed(facts, request.words, keys_);
    Needs needs;
    if (text.empty() && facts.reads) text = find_needs(needs);
  }
  if (!text.empty()) return state_.answer_error(text);
  if (state_.transaction) return queue_command(rule, request);
  switch (rule.way) {
    case Way::read:
      return pass(request, facts.is_pubsub);
    case Way::own:
      return send_alone(facts.reads ? Kind::reads : Kind::writes, facts, request);
    case Way::write:
    case Way::script:
      return take_write(facts, request, rule.way == Way::script);
    case Way::refused:
      break;
  }
  return state_.answer_error("ERR fenceguard: not permitted");
}

// A module may have been loaded meanwhile.
bool Relay::take_unknown(const Request& request) {
  if (may_be_command(request.words[0]) && !std::exchange(has_learned_, true)) {
    flush();
    state_.pause = ClientState::Pause::learning;
    state_.context.redis.learn_command(request.words[0]);
    return false;
  }
  has_learned_ = false;
  return state_.answer_error(unknown_command_text(request.words, *state_.context.options.commands));
}

bool Relay::take_fenced(const Request& request) {
  try {
    const auto spoken = parse_fenced(request.words);
    if (ConnectionCommands::find(spoken.command))
      return state_.answer_error(
          fmt::format("ERR fenceguard: {} cannot be said under FENCED", spoken.command[0]));
    const auto* facts = state_.context.options.commands->find(spoken.command);
    std::string bytes;
    redis::encode(spoken.command, bytes);
    const Request inner{spoken.command, bytes};
    return facts == nullptr ? take_unknown(inner) : take_under(*facts, inner, spoken);
  } catch (const InvalidInput& error) {
    return state_.answer_error(fmt::format("ERR fenceguard: {}", error.what()));
  }
}

bool Relay::take_under(const Facts& facts, const Request& request, const SpokenClaim& spoken) {
  has_learned_ = false;
  const auto rule = rule_for(facts, request.words, state_.context.options.permissions);
  auto text = state_.objection_to_signature("write", spoken);
  if (text.empty())
    text = objection_under(facts, request.words, rule, spoken.claim.resource.name(), state_.destination(),
                           keys_);
  if (!text.empty()) return state_.answer_error(text);
  return take_judged(facts, request, {.claims = {std::make_shared<HeldClaim>(spoken.claim)}},
                     rule.way == Way::script);
}

std::string Relay::find_needs(Needs& needs) {
  const bool may_lack = state_.context.options.permissions.unfenced == Unfenced::allow;
  if (keys_.names.empty() && !may_lack) return "NOFENCE it names no key, so no claim covers it";
  state_.claims.begin_command();
  for (const auto key : keys_.names) {
    const auto resource = redis::resource_of_key(key);
    if (state_.claims.add_to(needs, state_.login.database(), resource)) continue;
    const auto objection = Resource::objection(resource);
    if (may_lack) {
      // What can be no resource has no fence.
      if (objection.empty()) needs.unclaimed.emplace(resource);
      continue;
    }
    if (!objection.empty()) return objection_to_key(key, objection);
    state_.context.observer.missing(resource);
    if (!state_.sidecar_claims.empty())
      return fmt::format("NOFENCE resource={}: this sidecar does not hold it", resource);
    return no_claim_text(resource, state_.claims.has_held());
  }
  return {};
}

bool Relay::take_write(const Facts& facts, const Request& request, bool is_script) {
  using Kind = OwnCommand::Kind;
  const bool is_waiting = waits(facts, request.words);
  Needs needs;
  if (const auto text = find_needs(needs); !text.empty()) return state_.answer_error(text);
  // A script that writes nothing, as Redis sees to.
  if (is_script && facts.name.ends_with("_RO")) needs.unclaimed.clear();
  if (needs.empty())
    return is_script    ? send_alone(Kind::runs_script, facts, request)
           : is_waiting ? send_alone(Kind::writes, facts, request)
                        : pass(request, true);
  if (is_waiting) {
    if (!needs.claims.empty()) return state_.answer_error(objection_to_waiting(facts));
    return state_.send_alone(
        Kind::writes, {.slot = keys_.slot, .bytes = request.bytes, .unclaimed = std::move(needs.unclaimed)});
  }
  if (const auto text = state_.known_refusal(needs.claims); !text.empty()) return state_.answer_error(text);
  return take_judged(facts, request, std::move(needs), is_script);
}

bool Relay::take_judged(const Facts& facts, const Request& request, Needs needs, bool is_script) {
  auto& claims = needs.claims;
  if (const auto text = state_.objection_to_judging("write", claims); !text.empty())
    return state_.answer_error(text);
  if (!state_.are_settled(claims)) return false;
  const bool is_of_one_kind = claims.empty() || (claims.size() == 1 && needs.unclaimed.empty());
  if (!is_script && is_of_one_kind && CommandBatch::can_take(facts, request.words)) {
    if (!state_.replies.may_send(keys_.slot)) return false;
    state_.replies.gather(facts, request.words, std::move(needs), keys_);
    return true;
  }
  if (std::ranges::any_of(claims, [](const auto& held) { return held->claim.sequence.has_value(); }))
    return state_.answer_error(fmt::format("ERR fenceguard: {} cannot carry a sequence", facts.name));
  if (!state_.replies.is_quiet()) return false;
  WatchedTransaction::Work work{.claims = std::move(claims),
                                .unclaimed = std::move(needs.unclaimed),
                                .commands = std::string{request.bytes},
                                .count = 1,
                                .slot = keys_.slot,
                                .writes = facts.writes || is_script,
                                .is_single = true};
  state_.replies.send(
      std::make_unique<WatchedTransaction>(state_.context, state_.own, std::move(work), Channel::spare));
  return true;
}

bool Relay::pass(const Request& request, bool writes) {
  if (!state_.replies.may_send(keys_.slot)) return false;
  // A holder reads where its fence was advanced.
  const bool is_plain_read = !writes && state_.claims.size() == 0;
  state_.replies.send(
      std::make_unique<PlainCommand>(state_.context, keys_.slot, request.bytes, writes, is_plain_read));
  return true;
}

bool Relay::send_alone(OwnCommand::Kind kind, const Facts& facts, const Request& request) {
  const bool counts_writes = facts.name == "WAIT" || facts.name == "WAITAOF";
  return state_.send_alone(kind,
                           {.slot = keys_.slot, .bytes = request.bytes, .counts_writes = counts_writes});
}

bool Relay::queue_command(const Rule& rule, const Request& request) {
  auto& work = state_.transaction->work;
  if (rule.way == Way::write || rule.way == Way::script) {
    Needs needs;
    if (const auto text = find_needs(needs); !text.empty()) return state_.answer_error(text);
    const auto number = state_.transaction->number;
    for (auto& claim : needs.claims)
      if (std::exchange(claim->in_transaction, number) != number) work.claims.push_back(std::move(claim));
    work.unclaimed.merge(needs.unclaimed);
  }
  const int slot = keys_.slot;
  if (slot >= 0 && work.slot >= 0 && slot != work.slot && state_.context.redis.is_cluster())
    return state_.answer_error(crossslot);
  if (slot >= 0) work.slot = slot;
  work.writes = work.writes || rule.way != Way::read;
  return state_.add_to_transaction(request.bytes);
}

void Relay::replied(Channel channel, std::string_view reply) {
  const bool is_pushed = channel == Channel::own && state_.own.is_subscribed();
  if (is_pushed) {
    state_.own.subscriptions().received(reply);
    state_.context.client.answer(reply);
  } else {
    (void)state_.replies.replied(channel, reply);
  }
  end_broken_off();
}

void Relay::lost(Channel channel, bool was_sent, std::string_view why) {
  if (channel == Channel::own) {
    state_.own.lose_watch();
    // The client must subscribe again, and this is how it hears of it.
    if (state_.own.is_subscribed()) return state_.end();
  }
  (void)state_.replies.lost(channel, was_sent, why);
  end_broken_off();
}

bool Relay::bound(std::string_view error, bool needs_password) {
  const bool is_bound = connection_commands_.bound(error, needs_password);
  if (!state_.login.is_bound()) binding_fault_ = error;
  end_broken_off();
  return is_bound;
}

void Relay::learned() {
  if (state_.pause == ClientState::Pause::learning) state_.pause = ClientState::Pause::none;
  end_broken_off();
}

void Relay::woken() {
  if (state_.pause == ClientState::Pause::settling) state_.pause = ClientState::Pause::none;
  state_.replies.woken();
  end_broken_off();
}

}  // namespace fenceguard::resp
