#include "server/resp/command/command_batch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "adapters/redis/wire/errors.hpp"
#include "adapters/redis/wire/scripts.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

using redis::Arguments;
using Facts = redis::CommandTable::Facts;

// No other client is served while a run lasts, and with an outcome that is not known none of it is.
constexpr std::size_t commands_max = 64;
constexpr std::size_t bytes_max = 65'536;
// Lua takes so many on its stack, and some more.
constexpr std::size_t words_max = 7'000;

// Whose nil in an array's place becomes that of a text in Lua. With fewer words LPOP answers a text.
bool has_nil_array(const Facts& facts, Arguments words) {
  if (facts.name == "LPOP" || facts.name == "RPOP") return words.size() > 2;
  if (facts.name == "ZRANK" || facts.name == "ZREVRANK") return words.size() > 3;
  return facts.name == "LMPOP" || facts.name == "ZMPOP" || facts.name == "XREAD" || facts.name == "XRANGE" ||
         facts.name == "XREVRANGE";
}

// Lua rounds their numbers, or loses which nil it was within an array.
constexpr std::array inexact{"BITFIELD",    "BITFIELD_RO", "GEOPOS", "XPENDING",  "PTTL",
                             "PEXPIRETIME", "XREADGROUP",  "TTL",    "EXPIRETIME"};

// What a client knows from Redis and acts on: told as it is. Nothing was written then.
constexpr std::array own_words{"LOADING", "BUSY",       "READONLY",   "OOM",        "MISCONF",
                               "NOAUTH",  "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN"};
constexpr std::array not_run{"NOSCRIPT", "MOVED ", "ASK ", "TRYAGAIN"};

bool begins_with_any(std::string_view text, const auto& words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return text.starts_with(word); });
}

// Without where in which script it was raised.
std::string_view without_place(std::string_view text) {
  return text.substr(0, text.rfind(" script: "));
}

void add_words(std::string& out, std::initializer_list<std::string_view> words) {
  for (const auto word : words) add_bulk(out, word);
}

std::optional<std::int64_t> number_of(const std::optional<ReplyView>& view) {
  return view ? parse_decimal(view->text) : std::nullopt;
}

}  // namespace

std::string refusal_text(const Claim& claim, Verdict verdict, std::int64_t highest) {
  const auto& resource = claim.resource.name();
  const auto token = to_string(claim.token);
  if (verdict == Verdict::conflict)
    return fmt::format("CONFLICT token={} highest={} resource={}: another holder has this token", token,
                       highest, resource);
  if (verdict == Verdict::duplicate)
    return fmt::format(
        "DUPLICATE sequence={} token={} resource={}: it took effect before, nothing was written",
        claim.sequence ? to_string(*claim.sequence) : "", token, resource);
  return fmt::format("STALE token={} highest={} resource={}: nothing was written", token, highest, resource);
}

std::string fault_text(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::implausible:
      return fault.message.starts_with("IMPLAUSIBLE") ? fault.message : "IMPLAUSIBLE " + fault.message;
    case FaultKind::unknown:
      return "UNKNOWN " + fault.message;
    case FaultKind::invalid_input:
      return "ERR fenceguard: " + fault.message;
    default:
      return "UNAVAILABLE " + fault.message;
  }
}

std::string unclaimed_text(std::string_view resource) {
  return fmt::format(
      "NOFENCE resource={}: it has a fence, and this connection holds no claim to it; say FENCE {} TOKEN "
      "HOLDER first (sent again after a lost connection, the first sending may have taken effect)",
      resource, resource);
}

std::optional<std::string_view> unfenced_refusal(std::string_view error) {
  constexpr std::string_view word = "NOFENCE ";
  if (!error.starts_with(word)) return std::nullopt;
  return error.substr(word.size());
}

BatchResult result_of_error(std::string_view resource, std::string_view text) {
  BatchResult result;
  if (begins_with_any(text, not_run)) {
    result.kind = BatchResult::Kind::not_run;
  } else if (begins_with_any(text, own_words)) {
    result.kind = BatchResult::Kind::error;
  } else {
    redis::Reply reply;
    reply.kind = redis::Reply::Kind::error;
    reply.text = text;
    result.kind = BatchResult::Kind::fault;
    result.fault = redis::fault_of(fmt::format("'{}'", resource), reply);
    if (result.fault.kind == FaultKind::implausible)
      result.fault.message = fmt::format("resource={}: {}", resource, text.substr(text.find(' ') + 1));
  }
  return result;
}

ScriptCall advance_call(const Claim& claim, const redis::Keys& keys, bool is_cluster, std::int64_t jump_max) {
  ScriptCall call{&redis::scripts::advance(), 0, {}, std::string::npos};
  add_bulk(call.rest, is_cluster ? "1" : "3");
  add_bulk(call.rest, keys.fence(claim.resource));
  if (!is_cluster) add_words(call.rest, {keys.name_space(), keys.resources()});
  add_words(call.rest, {claim.resource.name(), to_string(claim.token), claim.holder.id(),
                        std::to_string(jump_bound(claim, jump_max))});
  add_bulk(call.rest, "0");
  call.asked_at = call.rest.size() - 3;
  call.words = is_cluster ? 7 : 9;
  return call;
}

BatchResult advance_result(const Claim& claim, std::string_view reply) {
  const auto answer = take_value(reply);
  BatchResult result;
  if (!answer) return result;
  if (answer->is_error()) return result_of_error(claim.resource.name(), answer->text);
  auto rest = answer->inside;
  const auto word = take_value(rest);
  const auto highest = number_of(take_value(rest));
  const auto raised = number_of(take_value(rest));
  const auto verdict = word ? parse_verdict(word->text) : std::nullopt;
  if (!verdict || !highest || !raised) return result;
  result.kind = BatchResult::Kind::ruled;
  result.verdict = *verdict;
  result.highest = *highest;
  result.has_raised = *raised == 1;
  return result;
}

namespace {

void add_fences(std::string& out, const Unclaimed& resources, const redis::Keys& keys, bool is_cluster) {
  if (!is_cluster) add_bulk(out, keys.resources());
  for (const auto& resource : resources) add_bulk(out, keys.fence(Resource{resource}));
}

}  // namespace

ScriptCall no_fence_call(const Unclaimed& resources, const redis::Keys& keys, bool is_cluster) {
  ScriptCall call{&redis::scripts::have_no_fence(is_cluster), 0, {}, std::string::npos};
  const auto key_count = resources.size() + (is_cluster ? 0 : 1);
  add_bulk(call.rest, std::to_string(key_count));
  add_fences(call.rest, resources, keys, is_cluster);
  add_bulk(call.rest, std::to_string(resources.size()));
  call.words = 2 + key_count;
  return call;
}

bool CommandBatch::can_take(const Facts& facts, Arguments words) {
  return words.size() <= words_max && std::ranges::find(inexact, facts.name) == inexact.end();
}

bool CommandBatch::take(const Facts& facts, Arguments words, const std::vector<std::string_view>& keys) {
  std::size_t bytes = 0;
  for (const auto word : words) bytes += word.size() + 8;
  if (count_ > 0) {
    if (count_ == commands_max || words_.size() + bytes > bytes_max) return false;
    if (claim_ && claim_->claim.sequence) return false;
    // The server asks whether there is memory until a script has written.
    if (facts.needs_memory && has_written_freely_) return false;
    if (!facts.writes || !writes_) return false;
  }
  writes_ = facts.writes;
  has_written_freely_ = has_written_freely_ || (facts.writes && !facts.needs_memory);
  if (has_nil_array(facts, words)) nil_arrays_ |= std::uint64_t{1} << count_;
  for (const auto key : keys) add_bulk(keys_, key);
  for (const auto word : words) add_bulk(words_, word);
  key_count_ += keys.size();
  word_count_ += words.size();
  layout_.append(facts.writes ? " " : " -").append(std::to_string(words.size()));
  ++count_;
  return true;
}

// What guarded_one is made for.
bool CommandBatch::is_one() const noexcept {
  return count_ == 1 && writes_ && !(claim_ && claim_->claim.sequence);
}

ScriptCall CommandBatch::unclaimed_call(const redis::Keys& keys, bool is_cluster) {
  ScriptCall call;
  call.script = &(is_one() ? redis::scripts::unfenced_one(is_cluster) : redis::scripts::unfenced(is_cluster));
  const auto key_count = unclaimed_.size() + (is_cluster ? 0 : 1) + key_count_;
  add_bulk(call.rest, std::to_string(key_count));
  add_fences(call.rest, unclaimed_, keys, is_cluster);
  call.rest.append(keys_);
  add_bulk(call.rest, std::to_string(unclaimed_.size()));
  if (!is_one()) add_bulk(call.rest, "each" + layout_);
  call.rest.append(words_);
  call.words = 2 + key_count + (is_one() ? 0 : 1) + word_count_;
  return call;
}

ScriptCall CommandBatch::call(const redis::Keys& keys, bool is_cluster, std::int64_t jump_max) {
  if (!claim_) {
    auto call = unclaimed_call(keys, is_cluster);
    free_memory(keys_);
    free_memory(words_);
    free_memory(layout_);
    return call;
  }
  const auto& claim = claim_->claim;
  ScriptCall call;
  call.script = &(is_one() ? redis::scripts::guarded_one(is_cluster) : redis::scripts::guarded(is_cluster));
  const std::size_t own_keys = is_cluster ? 1 : 2;
  call.rest.reserve(keys_.size() + words_.size() + layout_.size() + claim_->key_words.size() +
                    claim_->claim_words.size() + 64);
  add_bulk(call.rest, std::to_string(own_keys + key_count_));
  const auto jump = std::to_string(jump_bound(claim, jump_max));
  if (claim_->claim_words.empty()) {
    claim_->key_words.clear();
    add_bulk(claim_->key_words, keys.fence(claim.resource));
    if (!is_cluster) add_bulk(claim_->key_words, keys.name_space());
    // What writes nothing must not use up a sequence.
    add_bulk(claim_->claim_words,
             fmt::format("{} {} {} 0 {}", claim.token.value(), claim.holder.id(),
                         claim.sequence && writes_ ? to_string(*claim.sequence) : "-", jump));
  }
  call.rest.append(claim_->key_words).append(keys_).append(claim_->claim_words);
  call.asked_at = call.rest.size() - 4 - jump.size();
  if (!is_one()) add_bulk(call.rest, (count_ > 1 ? "each" : "all") + layout_);
  call.rest.append(words_);
  call.words = 1 + own_keys + key_count_ + 1 + (is_one() ? 0 : 1) + word_count_;
  free_memory(keys_);
  free_memory(words_);
  free_memory(layout_);
  return call;
}

void CommandBatch::add_reply(std::size_t place, std::string_view reply, std::string& out) const {
  constexpr std::string_view no_right = "-ERR The user executing the script can't";
  if (reply == nil_bulk && (nil_arrays_ >> place & 1) != 0) {
    out.append(nil_array);
  } else if (reply.starts_with(no_right)) {
    out.append("-NOPERM this user can't").append(reply.substr(no_right.size()));
  } else {
    out.append(reply);
  }
}

// exact: nothing, or the inside of {place, digits, place, digits, ...}.
bool CommandBatch::add_replies(std::string_view exact, std::string_view replies, std::string& out) const {
  for (std::size_t place = 0; place < count_; ++place) {
    const auto reply = take_value(replies);
    if (!reply) return false;
    auto rest = exact;
    const auto at = number_of(take_value(rest));
    if (at && *at == static_cast<std::int64_t>(place) + 1) {
      const auto digits = take_value(rest);
      if (!digits) return false;
      add_integer(out, digits->text);
      exact = rest;
    } else {
      add_reply(place, reply->bytes, out);
    }
  }
  return true;
}

BatchResult CommandBatch::end_error(std::string_view text, std::string& out) const {
  const auto refused = claim_ ? std::nullopt : unfenced_refusal(text);
  BatchResult result;
  if (refused) {
    result.kind = BatchResult::Kind::error;
  } else {
    result = result_of_error(claim_ ? claim_->claim.resource.name() : *unclaimed_.begin(), text);
  }
  if (result.kind != BatchResult::Kind::error) return result;
  const auto said = refused ? unclaimed_text(*refused) : std::string{without_place(text)};
  for (std::size_t i = 0; i < count_; ++i) add_error(out, said);
  return result;
}

BatchResult CommandBatch::end(std::string_view bytes, std::string& out) const {
  BatchResult result;
  const auto answer = take_value(bytes);
  if (!answer) return result;
  if (answer->is_error()) return end_error(answer->text, out);
  result.verdict = Verdict::admitted;
  result.highest = claim_ ? claim_->claim.token.value() : 0;
  const auto admitted = [&](bool is_whole) {
    if (is_whole) result.kind = BatchResult::Kind::ruled;
    return result;
  };
  if (answer->kind != '*') {
    add_reply(0, answer->bytes, out);
    return admitted(is_one());
  }
  auto rest = answer->inside;
  const auto first = take_value(rest);
  if (!first) return result;
  const bool is_whole_rule = answer->elements >= 4 && first->kind == '$' && !first->is_nil;
  if (!is_whole_rule && is_one()) {
    const auto digits = take_value(rest);
    if (digits) {
      add_integer(out, digits->text);
    } else {
      add_reply(0, first->bytes, out);
    }
    return admitted(true);
  }
  if (!is_whole_rule) return admitted(add_replies(first->inside, rest, out));
  if (!claim_) return result;
  result.has_raised = first->text == "raised";
  const auto verdict = result.has_raised ? Verdict::admitted : parse_verdict(first->text);
  const auto highest = number_of(take_value(rest));
  (void)take_value(rest);  // the sequence on record
  const auto exact = take_value(rest);
  if (!verdict || !highest || !exact) return result;
  result.verdict = *verdict;
  result.highest = *highest;
  if (*verdict == Verdict::admitted) return admitted(add_replies(exact->inside, rest, out));
  for (std::size_t i = 0; i < count_; ++i) add_error(out, refusal_text(claim_->claim, *verdict, *highest));
  return admitted(true);
}

}  // namespace fenceguard::resp
