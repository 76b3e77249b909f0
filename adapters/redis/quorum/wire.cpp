#include "adapters/redis/quorum/wire.hpp"

#include "adapters/redis/wire/connection.hpp"
#include "adapters/redis/wire/script.hpp"
#include "guard/token.hpp"

namespace fenceguard::redis {

extern const std::string_view lua_decimal, lua_quorum_node, lua_quorum_ask_free, lua_quorum_ask,
    lua_quorum_confirm, lua_quorum_extend, lua_quorum_withdraw, lua_quorum_renew, lua_quorum_release,
    lua_quorum_look, lua_quorum_prepare, lua_quorum_freeze, lua_quorum_lift, lua_quorum_found,
    lua_quorum_draw;

namespace quorum {

using Kind = Answer::Kind;
using What = Request::What;

namespace {

const Script& script_of(What what) {
  static const Script ask{with_full_memory, lua_quorum_ask_free, lua_quorum_node, lua_quorum_ask};
  static const Script confirm{with_full_memory, lua_decimal, lua_quorum_node, lua_quorum_confirm};
  static const Script extend{with_full_memory, lua_quorum_node, lua_quorum_extend};
  static const Script withdraw{with_full_memory, lua_quorum_node, lua_quorum_withdraw};
  static const Script renew{with_full_memory, lua_quorum_node, lua_quorum_renew};
  static const Script release{with_full_memory, lua_quorum_release};
  static const Script look{lua_quorum_node, lua_quorum_look};
  static const Script prepare{with_full_memory, lua_quorum_node, lua_quorum_prepare};
  static const Script freeze{with_full_memory, lua_quorum_node, lua_quorum_freeze};
  static const Script lift{with_full_memory, lua_decimal, lua_quorum_node, lua_quorum_lift};
  static const Script found{with_full_memory, lua_quorum_found};
  static const Script draw{with_full_memory, lua_quorum_node, lua_quorum_draw};
  switch (what) {
    case What::ask:
      return ask;
    case What::confirm:
      return confirm;
    case What::extend:
      return extend;
    case What::withdraw:
      return withdraw;
    case What::renew:
      return renew;
    case What::release:
      return release;
    case What::show:
      return look;
    case What::prepare:
      return prepare;
    case What::freeze:
      return freeze;
    case What::lift:
      return lift;
    case What::bootstrap:
      return found;
    case What::draw:
      break;
  }
  return draw;
}

std::vector<std::string> arguments_of(const Request& request) {
  const auto number = std::to_string(request.number);
  const auto ttl = std::to_string(request.ttl_ms);
  switch (request.what) {
    case What::ask:
      return {request.holder + ' ' + request.nonce, ttl};
    case What::confirm:
      return {request.epoch, std::to_string(request.answered), request.holder, request.nonce, number};
    case What::extend:
      return {request.epoch, number, request.holder, request.nonce, ttl};
    case What::withdraw:
      return {request.holder, request.nonce, number};
    case What::renew:
      return {number, request.holder, ttl};
    case What::release:
      return {number + ' ' + request.holder + ' '};
    case What::show:
      return {};
    case What::prepare:
      return {request.nonce};
    case What::freeze:
      return {request.epoch, request.next_epoch};
    case What::lift:
      return {request.epoch, number};
    case What::bootstrap:
      return {request.nonce, request.epoch, number};
    case What::draw:
      break;
  }
  return {};
}

bool needs_node(What what) {
  return what == What::ask || what == What::confirm || what == What::extend || what >= What::prepare;
}

bool needs_lock(What what) {
  return what < What::prepare;
}

std::optional<Kind> kind_of(std::string_view word) {
  if (word == "granted") return Kind::granted;
  if (word == "mine") return Kind::mine;
  if (word == "held") return Kind::held;
  if (word == "confirmed") return Kind::confirmed;
  if (word == "refused") return Kind::refused;
  if (word == "marked") return Kind::marked;
  if (word == "unmarked") return Kind::unmarked;
  return std::nullopt;
}

}  // namespace

std::string encoded(const std::string& prefix, const Request& request, bool by_hash) {
  std::vector<std::string> words;
  words.reserve(8);
  if (needs_node(request.what)) {
    words.push_back(prefix + "quorum:marker");
    words.push_back(prefix + "quorum:counter");
  }
  if (needs_lock(request.what)) words.push_back(prefix + "quorum:lock:{" + request.resource + "}");
  const auto key_count = std::to_string(words.size());
  for (auto& argument : arguments_of(request)) words.push_back(std::move(argument));
  const auto& script = script_of(request.what);
  std::vector<std::string_view> views;
  views.reserve(3 + words.size());
  views.insert(views.end(),
               {by_hash ? "EVALSHA" : "EVAL", by_hash ? script.hash() : script.text(), key_count});
  views.insert(views.end(), words.begin(), words.end());
  std::string text;
  encode(views, text);
  return text;
}

namespace {

// Of ask_free.lua: 'ERA NUMBER'.
std::optional<Answer> granted(const std::string& text) {
  const auto space = text.rfind(' ');
  const auto number =
      space == text.npos ? std::nullopt : parse_decimal(std::string_view{text}.substr(space + 1));
  if (!number) return std::nullopt;
  Answer answer;
  answer.kind = Kind::granted;
  answer.to = What::ask;
  answer.epoch = text.substr(0, space);
  answer.number = *number;
  return answer;
}

}  // namespace

std::optional<Answer> answer_of(What what, const Reply& reply) {
  if (what == What::ask && reply.kind == Reply::Kind::text) return granted(reply.text);
  if (what == What::release && reply.kind == Reply::Kind::integer) {
    Answer answer;
    answer.kind = reply.integer == 1 ? Kind::confirmed : Kind::refused;
    answer.to = what;
    return answer;
  }
  if (reply.kind != Reply::Kind::array || reply.elements.empty()) return std::nullopt;
  const auto kind = kind_of(reply.elements[0].text);
  if (!kind) return std::nullopt;
  Answer answer;
  answer.kind = *kind;
  answer.to = what;
  const auto& elements = reply.elements;
  if (elements.size() > 1) answer.epoch = elements[1].text;
  if (elements.size() > 2) {
    const auto number = parse_decimal(elements[2].text);
    if (!number) return std::nullopt;
    answer.number = *number;
  }
  if (elements.size() > 3 && what == What::prepare) {
    answer.clock_us = parse_decimal(elements[3].text).value_or(0);
  } else if (elements.size() > 3) {
    // A lock that never ends is another's, and there is no telling when it is free.
    answer.left_ms = elements[3].integer < 0 ? 1'000 : elements[3].integer;
  }
  if (elements.size() > 4) answer.holder = elements[4].text;
  return answer;
}

}  // namespace quorum
}  // namespace fenceguard::redis
