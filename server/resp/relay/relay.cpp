#include "server/resp/relay/relay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "guard/error.hpp"
#include "guard/support/text.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

// Under Redis Cluster. Where to, a client is not told: it would go there itself.
constexpr std::string_view keys_move =
    "TRYAGAIN the cluster moves these keys just now; nothing was done, try again";
constexpr int moves_max = 6;
constexpr int settle_look_ms = 10;

// By which a client would go to another server, past the guard.
bool leads_elsewhere(std::string_view reply) {
  return reply.starts_with("-MOVED ") || reply.starts_with("-ASK ");
}

// The first line of a request of HTTP, or one of its fields: what a web page has its browser send here. Redis
// ends such a connection as well.
bool is_cross_protocol(std::string_view name) noexcept {
  return equals_ignoring_case(name, "POST") || equals_ignoring_case(name, "Host:");
}

}  // namespace

Relay::Relay(const RelayOptions& options, RelayPort& port, RelayObserver& observer)
    : options_{options},
      port_{port},
      observer_{observer},
      login_{options, port},
      owed_{port, observer,
            [this](const HeldClaimPtr& claim, const BatchResult& result) { end_fence(claim, result); }},
      transaction_{port, options.keys, options.jump_max} {}

bool Relay::is_idle() const noexcept {
  return owed_.empty() && run_.empty() && !is_waiting_ && !queue_ && !is_watching_ &&
         !subscriptions_.is_active();
}

bool Relay::may_end() const noexcept {
  return is_idle() || subscriptions_.is_active() || alone_ == Alone::reads;
}

bool Relay::is_answering() const noexcept {
  const bool is_others = alone_ != Alone::nothing && alone_ != Alone::watches;
  return !owed_.empty() || !run_.empty() || (is_waiting_ && !is_others) || login_.is_binding();
}

bool Relay::is_held() const noexcept {
  return is_waiting_ || is_ending_ || owed_.is_repeating() || owed_.size() >= options_.owed_max ||
         owed_.bytes() >= options_.owed_bytes_max || subscriptions_.awaited() >= options_.owed_max ||
         (wants_quiet_ && !owed_.empty()) || (!login_.is_bound() && login_.is_binding());
}

std::size_t Relay::owed() const noexcept {
  return owed_.size() + (is_waiting_ && owed_.empty() ? 1 : 0);
}

bool Relay::awaits_judged_write(Channel channel) const noexcept {
  if (channel == Channel::shared) return owed_.awaits_judged_write();
  return transaction_.channel() == channel && transaction_.may_take_effect();
}

std::vector<HeldClaimPtr> Relay::claims_under_way() const {
  if (is_idle()) return {};
  auto claims = owed_.awaited_claims();
  std::ranges::move(claims_.list(database()), std::back_inserter(claims));
  if (transaction_.may_take_effect())
    claims.insert(claims.end(), transaction_.work().claims.begin(), transaction_.work().claims.end());
  return claims;
}

void Relay::hold(std::vector<Claim> claims) {
  held_ = std::move(claims);
  take_held_claims();
}

void Relay::hold_until_begun(std::vector<Claim> claims, std::string_view why) {
  reserved_ = std::move(claims);
  lost_ = fmt::format("LOST {}: start the program anew, or let it say FENCE.BEGIN", why);
}

void Relay::take_held_claims() {
  for (const auto& claim : held_) claims_.hold(options_.database, std::make_shared<HeldClaim>(claim));
}

// What others do is not waited for.
void Relay::lose_claims() {
  if (is_ending_) return;
  flush();
  is_ending_ = is_broken_off_ = true;
  if (!is_answering()) return port_.end();
  end_broken_off();
}

void Relay::break_off(std::string_view why) {
  if (is_ending_) return;
  is_ending_ = is_broken_off_ = true;
  (void)answer_error(fmt::format("ERR {}", why));
  end_broken_off();
}

void Relay::end_broken_off() {
  if (is_broken_off_ && owed_.empty() && !is_waiting_) port_.end();
}

bool Relay::take(redis::Arguments words, std::string_view bytes) {
  if (is_ending_) return true;
  if (is_held()) return false;
  wants_quiet_ = false;
  if (is_cross_protocol(words[0])) {
    is_ending_ = true;
    port_.end();
    return true;
  }
  if (!login_.is_bound()) {
    if (binding_fault_.empty()) {
      login_.begin_binding();
      // It may have come within the call.
      if (login_.is_binding()) return false;
    }
    if (!binding_fault_.empty())
      return answer_error(fmt::format("UNAVAILABLE {}", std::exchange(binding_fault_, {})));
  }
  const Request request{words, bytes};
  return subscriptions_.is_active() ? take_subscribed(request) : take_command(request);
}

bool Relay::take_command(const Request& request) {
  const auto* facts = options_.commands->find(request.words);
  if (facts == nullptr || (!facts->reads && !facts->writes)) {
    if (const auto word = word_of(request.words)) return take_word(*word, request);
  }
  if (!login_.is_let_in()) return answer_error("NOAUTH Authentication required.");
  if (!lost_.empty()) return answer_error(lost_);
  if (facts == nullptr) return take_unknown(request);
  has_learned_ = false;
  const auto rule = rule_for(*facts, request.words, options_.permissions);
  if (const auto text = objection_to(*facts, request.words, rule); !text.empty()) return answer_error(text);
  if (queue_) return queue_command(rule, request);
  switch (rule.way) {
    case Way::read:
      return pass(request, facts->is_pubsub);
    case Way::own:
      return pass_alone(request, facts->reads ? Alone::reads : Alone::writes);
    case Way::write:
    case Way::script:
      return take_write(*facts, request, rule.way == Way::script);
    case Way::refused:
      break;
  }
  return answer_error("ERR fenceguard: not permitted");
}

bool Relay::take_write(const Facts& facts, const Request& request, bool is_script) {
  const bool is_waiting = waits(facts, request.words);
  Needs needs;
  if (const auto text = find_needs(needs); !text.empty()) return answer_error(text);
  // A script that writes nothing, as Redis sees to.
  if (is_script && facts.name.ends_with("_RO")) needs.unclaimed.clear();
  if (needs.empty())
    return is_script    ? pass_alone(request, Alone::runs_script)
           : is_waiting ? pass_alone(request, Alone::writes)
                        : pass(request, true);
  if (is_waiting) return take_waiting(facts, request, needs);
  if (const auto text = known_refusal(needs.claims); !text.empty()) return answer_error(text);
  return take_judged(facts, request, std::move(needs), is_script);
}

// Without a claim it is asked first whether there is a fence: one that is made while it waits is not seen.
bool Relay::take_waiting(const Facts& facts, const Request& request, const Needs& needs) {
  if (!needs.claims.empty()) return answer_error(objection_to_waiting(facts));
  if (!is_quiet()) return false;
  alone_ = Alone::asks;
  alone_next_ = request.bytes;
  is_waiting_ = true;
  port_.prepare(Channel::own, slot_, is_watching_);
  port_.send(Channel::own, slot_, no_fence_call(needs.unclaimed, options_.keys, port_.is_cluster()), true);
  return true;
}

bool Relay::take_judged(const Facts& facts, const Request& request, Needs needs, bool is_script) {
  auto& claims = needs.claims;
  if (const auto text = objection_to_judging("write", claims); !text.empty()) return answer_error(text);
  if (!are_settled(claims)) return false;
  const bool is_of_one_kind = claims.empty() || (claims.size() == 1 && needs.unclaimed.empty());
  if (!is_script && is_of_one_kind && CommandBatch::can_take(facts, request.words)) {
    if (!may_send(slot_)) return false;
    const auto claim = claims.empty() ? nullptr : claims.front();
    const bool is_same = run_.claim() == claim && run_.unclaimed() == needs.unclaimed;
    // Of several resources each command stands for itself.
    const bool may_join = claim || needs.unclaimed.size() == 1;
    if (run_.empty() || !is_same || !may_join || !run_.take(facts, request.words, keys_)) {
      send_run();
      run_ = claim ? CommandBatch{claim} : CommandBatch{std::move(needs.unclaimed)};
      (void)run_.take(facts, request.words, keys_);
      run_slot_ = slot_;
    }
    return true;
  }
  if (std::ranges::any_of(claims, [](const auto& held) { return held->claim.sequence.has_value(); }))
    return answer_error(fmt::format("ERR fenceguard: {} cannot carry a sequence", facts.name));
  if (!is_quiet()) return false;
  WatchedTransaction::Work work;
  work.claims = std::move(claims);
  work.unclaimed = std::move(needs.unclaimed);
  work.commands = request.bytes;
  work.count = 1;
  work.slot = slot_;
  work.writes = facts.writes || is_script;
  work.is_single = true;
  return begin_transaction(std::move(work), Channel::spare);
}

bool Relay::begin_transaction(WatchedTransaction::Work work, Channel channel) {
  is_waiting_ = true;
  port_.prepare(channel, work.slot, is_watching_);
  transaction_.begin(std::move(work), channel, [this](const Claim& claim) { observer_.raised(claim); });
  return true;
}

void Relay::end_transaction() {
  auto& result = transaction_.result();
  const auto& work = transaction_.work();
  if (result.is_moved && !work.is_watching && ++moves_ < moves_max) {
    if (result.fault.message.starts_with("MOVED ")) port_.redirect(work.slot, result.fault.message);
    is_transaction_moved_ = true;
    return port_.sleep(1 << moves_);
  }
  moves_ = 0;
  // A script can answer with what it likes.
  if (result.is_moved || leads_elsewhere(result.text)) {
    result.text.clear();
    add_error(result.text, keys_move);
  }
  if (work.is_watching || transaction_.channel() == Channel::own) is_watching_ = false;
  is_waiting_ = false;
  const auto count = std::max<std::size_t>(1, work.count);
  for (const auto& held : work.claims) {
    if (result.kind == WatchedTransaction::Result::Kind::fault) {
      observer_.failed("write", held->claim, result.fault, count);
    } else if (result.kind == WatchedTransaction::Result::Kind::replies) {
      observer_.ruled("write", held->claim, Verdict::admitted, held->claim.token.value(), count);
    }
  }
  if (result.refusal)
    observer_.ruled("write", result.refusal->claim, *result.refusal->refusal, result.refusal->highest, count);
  if (!result.missing.empty()) observer_.missing(result.missing);
  port_.answer(result.text);
  transaction_.forget();
}

// Of one server at a time, so that the order is kept.
bool Relay::may_send(int slot) {
  if (!port_.is_cluster()) return true;
  const int server = port_.server_of(slot);
  if (server != server_) {
    if (!is_quiet()) return false;
    server_ = server;
  }
  return true;
}

bool Relay::pass(const Request& request, bool writes) {
  if (!may_send(slot_)) return false;
  send_run();
  PendingReply reply;
  reply.kind = PendingReply::Kind::passed;
  reply.writes = writes;
  // A holder reads where its fence was advanced.
  reply.is_plain_read = !writes && claims_.size() == 0;
  reply.slot = slot_;
  owed_.send(std::move(reply), request.bytes);
  return true;
}

bool Relay::pass_alone(const Request& request, Alone alone) {
  if (!is_quiet()) return false;
  if (is_watching_ && port_.is_cluster() && slot_ >= 0 && slot_ != watched_slot_)
    return answer_error("CROSSSLOT keys of another slot are watched");
  if (alone == Alone::watches) watched_slot_ = slot_;
  alone_ = alone;
  is_waiting_ = true;
  // Redis counts for WAIT what this connection has written: what was said on another one counts from any
  // command on.
  const auto* facts = options_.commands->find(request.words);
  skips_reply_ = facts != nullptr && (facts->name == "WAIT" || facts->name == "WAITAOF");
  port_.prepare(Channel::own, slot_, is_watching_);
  if (skips_reply_) port_.send(Channel::own, slot_, "*1\r\n$4\r\nPING\r\n", 1, false);
  port_.send(Channel::own, slot_, request.bytes, 1, alone != Alone::watches);
  return true;
}

bool Relay::queue_command(const Rule& rule, const Request& request) {
  auto& work = queue_->work;
  if (rule.way == Way::write || rule.way == Way::script) {
    Needs needs;
    if (const auto text = find_needs(needs); !text.empty()) return answer_error(text);
    for (auto& claim : needs.claims)
      if (std::exchange(claim->in_queue, queue_->number) != queue_->number)
        work.claims.push_back(std::move(claim));
    work.unclaimed.merge(needs.unclaimed);
  }
  if (slot_ >= 0 && work.slot >= 0 && slot_ != work.slot && port_.is_cluster())
    return answer_error("CROSSSLOT Keys in request don't hash to the same slot");
  if (slot_ >= 0) work.slot = slot_;
  work.writes = work.writes || rule.way != Way::read;
  return queue_bytes(request.bytes);
}

bool Relay::queue_bytes(std::string_view bytes) {
  auto& work = queue_->work;
  if (work.commands.size() + bytes.size() > options_.queue_bytes_max)
    return answer_error("ERR fenceguard: the transaction is larger than is relayed");
  work.commands.append(bytes);
  ++work.count;
  answer("+QUEUED\r\n");
  return true;
}

void Relay::answer(std::string_view bytes) {
  send_run();
  owed_.answer(bytes);
}

// A refused command of a transaction makes all of it fail, as in Redis.
bool Relay::answer_error(std::string_view text) {
  if (queue_) queue_->is_dirty = true;
  std::string bytes;
  add_error(bytes, text);
  answer(bytes);
  return true;
}

void Relay::send_run() {
  if (run_.empty()) return;
  PendingReply reply;
  reply.kind = PendingReply::Kind::run;
  reply.writes = run_.writes();
  reply.slot = run_slot_;
  reply.call = run_.call(options_.keys, port_.is_cluster(), options_.jump_max);
  reply.run = std::exchange(run_, {});
  owed_.send(std::move(reply));
}

void Relay::flush() {
  send_run();
}

bool Relay::is_quiet() {
  send_run();
  wants_quiet_ = !owed_.empty();
  return !wants_quiet_;
}

bool Relay::are_settled(const std::vector<HeldClaimPtr>& claims) {
  is_settling_ = std::ranges::any_of(
      claims, [&](const auto& held) { return port_.is_unsettled(login_.database(), held->claim); });
  if (!is_settling_) return true;
  is_waiting_ = true;
  port_.sleep(settle_look_ms);
  return false;
}

void Relay::replied(Channel channel, std::string_view reply) {
  if (channel == Channel::shared) {
    owed_.replied(reply);
  } else {
    replied_alone(channel, reply);
  }
  end_broken_off();
}

void Relay::replied_alone(Channel channel, std::string_view reply) {
  if (transaction_.is_running() && transaction_.channel() == channel) {
    if (transaction_.replied(reply)) end_transaction();
    return;
  }
  if (channel != Channel::own) return;
  if (subscriptions_.is_active()) {
    subscriptions_.received(reply);
    return port_.answer(reply);
  }
  if (alone_ == Alone::nothing || std::exchange(skips_reply_, false)) return;
  if (alone_ == Alone::asks && reply == ok_reply) {
    alone_ = Alone::writes;
    return port_.send(Channel::own, slot_, std::exchange(alone_next_, {}), 1, true);
  }
  const auto alone = std::exchange(alone_, Alone::nothing);
  if (alone == Alone::asks) {
    is_waiting_ = false;
    if (const auto resource = unfenced_refusal(reply.substr(1, reply.size() - 3))) {
      observer_.missing(*resource);
      return void(answer_error(unclaimed_text(*resource)));
    }
  }
  if (alone == Alone::watches && reply == ok_reply) is_watching_ = true;
  is_waiting_ = false;
  if (!leads_elsewhere(reply)) return port_.answer(reply);
  // A script can answer with what it likes: nobody is led elsewhere by it.
  const bool is_of_redis = alone != Alone::runs_script;
  if (is_of_redis && reply.starts_with("-MOVED ")) port_.redirect(slot_, reply.substr(1, reply.size() - 3));
  (void)answer_error(keys_move);
}

void Relay::lost(Channel channel, bool was_sent, std::string_view why) {
  if (channel == Channel::shared) {
    owed_.lost(was_sent, why);
  } else {
    lost_alone(channel, was_sent, why);
  }
  end_broken_off();
}

void Relay::lost_alone(Channel channel, bool was_sent, std::string_view why) {
  if (channel == Channel::own) {
    // An EXEC that is under way says so itself.
    const bool is_told = transaction_.is_running() && transaction_.channel() == channel;
    if (is_watching_ && !is_told) has_lost_watch_ = true;
    is_watching_ = false;
    // The client must subscribe again, and this is how it hears of it.
    if (subscriptions_.is_active()) {
      is_ending_ = true;
      return port_.end();
    }
  }
  if (transaction_.is_running() && transaction_.channel() == channel) {
    transaction_.lost(was_sent, why);
    return end_transaction();
  }
  if (channel != Channel::own || alone_ == Alone::nothing) return;
  const auto alone = std::exchange(alone_, Alone::nothing);
  const bool is_unknown = (alone == Alone::writes || alone == Alone::runs_script) && was_sent;
  is_waiting_ = skips_reply_ = false;
  (void)answer_error(
      fault_text({is_unknown ? FaultKind::unknown : FaultKind::unavailable, std::string{why}}));
}

bool Relay::bound(std::string_view error, bool needs_password) {
  const bool is_bound = take_binding(error, needs_password);
  end_broken_off();
  return is_bound;
}

bool Relay::take_binding(std::string_view error, bool needs_password) {
  is_waiting_ = false;
  const bool is_resetting = login_.is_resetting();
  const auto text = login_.bound(error, needs_password);
  if (!login_.is_bound()) binding_fault_ = error;
  if (text.empty()) return login_.is_bound();
  if (!text.starts_with('-')) {
    // They are another user's, or of another database.
    if (is_watching_) has_lost_watch_ = true;
    is_watching_ = false;
    port_.close(Channel::own);
    port_.close(Channel::spare);
  }
  port_.answer(text);
  // The client counts on being nobody in particular again.
  if (text.starts_with('-') && is_resetting) {
    is_ending_ = true;
    port_.end();
  }
  return !text.starts_with('-');
}

void Relay::learned() {
  is_waiting_ = false;
  end_broken_off();
}

void Relay::woken() {
  owed_.woken();
  if (std::exchange(is_settling_, false)) is_waiting_ = false;
  if (std::exchange(is_transaction_moved_, false)) {
    auto work = transaction_.work();
    (void)begin_transaction(std::move(work), transaction_.channel());
  }
  end_broken_off();
}

}  // namespace fenceguard::resp
