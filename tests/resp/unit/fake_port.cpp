#include "tests/resp/unit/fake_port.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp::test {
namespace {

using redis::Reply;

const char* name_of(Channel channel) {
  if (channel == Channel::shared) return "shared";
  return channel == Channel::own ? "own" : "spare";
}

Reply text(std::string_view value) {
  return {Reply::Kind::text, 0, std::string{value}, {}};
}
Reply status(std::string_view value) {
  return {Reply::Kind::status, 0, std::string{value}, {}};
}
Reply number(std::int64_t value) {
  return {Reply::Kind::integer, value, {}, {}};
}
Reply array(std::vector<Reply> elements) {
  return {Reply::Kind::array, 0, {}, std::move(elements)};
}

struct Form {
  const char* name;
  int arity;
  std::vector<const char*> flags;
  // The keys: from the word 'first' on, to the 'last' from there (negative: from the end), in steps; 0: none.
  int first = 0, last = 0, step = 1;
  int count_at = -1;              // instead: the word that counts the keys, which follow it
  const char* keyword = nullptr;  // instead: behind it, the first half of what follows
};

Reply spec_of(const Form& form) {
  const auto begin =
      form.keyword != nullptr
          ? array({text("type"), text("keyword"), text("spec"),
                   array({text("keyword"), text(form.keyword), text("startfrom"), number(1)})})
          : array({text("type"), text("index"), text("spec"),
                   array({text("index"), number(form.count_at > 0 ? form.count_at : form.first)})});
  const auto find =
      form.count_at > 0
          ? array({text("type"), text("keynum"), text("spec"),
                   array({text("keynumidx"), number(0), text("firstkey"), number(1), text("keystep"),
                          number(1)})})
          : array({text("type"), text("range"), text("spec"),
                   array({text("lastkey"), number(form.keyword != nullptr ? -1 : form.last), text("keystep"),
                          number(form.step), text("limit"), number(form.keyword != nullptr ? 2 : 0)})});
  return array({text("flags"), array({}), text("begin_search"), begin, text("find_keys"), find});
}

Reply info_of(const Form& form, std::vector<Reply> subcommands = {}) {
  std::vector<Reply> flags, specs;
  for (const auto* flag : form.flags) flags.push_back(status(flag));
  if (form.first > 0 || form.count_at > 0 || form.keyword != nullptr) specs.push_back(spec_of(form));
  return array({text(form.name), number(form.arity), array(std::move(flags)), number(0), number(0), number(0),
                array({}), array({}), array(std::move(specs)), array(std::move(subcommands))});
}

}  // namespace

void learn_some_commands(redis::CommandTable& table) {
  const std::vector<Form> forms{
      {"get", 2, {"readonly", "fast"}, 1},
      {"mget", -2, {"readonly"}, 1, -1},
      {"pttl", 2, {"readonly"}, 1},
      {"dbsize", 1, {"readonly"}},
      {"set", -3, {"write", "denyoom"}, 1},
      {"incr", 2, {"write", "denyoom"}, 1},
      {"del", -2, {"write"}, 1, -1},
      {"mset", -3, {"write", "denyoom"}, 1, -1, 2},
      {"lpop", -2, {"write"}, 1},
      {"blpop", -3, {"write", "noscript", "blocking"}, 1, -2},
      {"bitfield", -2, {"write", "denyoom"}, 1},
      {"copy", -3, {"write", "denyoom"}, 1, 1},
      {"sort_ro", -2, {"readonly"}, 1},
      {"xread", -4, {"readonly", "blocking"}, 0, 0, 1, -1, "STREAMS"},
      {"xreadgroup", -7, {"write", "blocking"}, 0, 0, 1, -1, "STREAMS"},
      {"eval", -3, {"noscript", "stale", "movablekeys"}, 0, 0, 1, 2},
      {"ping", -1, {"fast"}},
      {"publish", 3, {"pubsub"}},
      {"spublish", 3, {"pubsub"}},
      {"wait", 3, {"noscript"}},
      {"watch", -2, {"noscript", "fast"}, 1, -1},
      {"flushall", -1, {"write"}},
      {"monitor", 1, {"admin", "noscript"}},
      {"weird", -1, {"fast"}},
      {"subscribe", -2, {"pubsub", "noscript"}},
      {"unsubscribe", -1, {"pubsub", "noscript"}},
  };
  std::vector<Reply> all;
  for (const auto& form : forms) all.push_back(info_of(form));
  all.push_back(info_of({"config", -2, {}}, {info_of({"config|set", -4, {"admin", "noscript"}})}));
  all.push_back(info_of({"cluster", -2, {}}, {info_of({"cluster|nodes", 2, {"stale"}})}));
  table.learn(array(std::move(all)));
  // Renamed: it describes itself by its own name.
  const std::string_view renamed[] = {"hold_on"};
  table.learn(renamed, array({info_of({"wait", 3, {"noscript"}})}));
}

std::vector<std::string> Sent::words() const {
  std::string_view rest = bytes;
  if (script == nullptr) {
    const auto request = take_value(rest);
    if (!request) throw std::logic_error("no whole request was sent");
    rest = request->inside;
  }
  std::vector<std::string> found;
  for (auto word = take_value(rest); word; word = take_value(rest)) found.emplace_back(word->text);
  return found;
}

void FakePort::prepare(Channel channel, int slot, bool stays) {
  prepared.push_back(fmt::format("{} {}{}", name_of(channel), slot, stays ? " stays" : ""));
}

void FakePort::send(Channel channel, int slot, std::string_view bytes, std::size_t replies, bool /*waits*/) {
  sent.push_back({.channel = channel, .slot = slot, .bytes = std::string{bytes}, .replies = replies});
}

void FakePort::send(Channel channel, int slot, const ScriptCall& call, bool with_text) {
  sent.push_back(
      {.channel = channel, .slot = slot, .bytes = call.rest, .script = call.script, .with_text = with_text});
}

void FakePort::redirect(int slot, std::string_view error) {
  seen.push_back(fmt::format("redirect {} {}", slot, error));
}

void FakePort::close(Channel channel) {
  seen.push_back(fmt::format("close {}", name_of(channel)));
}

void FakePort::bind(const Identity& identity, int database) {
  seen.push_back(fmt::format("bind {}{}{}", identity.user, identity.user.empty() ? "" : " ", database));
  if (!binds_later) relay->bound({}, false);
}

void FakePort::learn_command(std::string_view name) {
  seen.push_back(fmt::format("learn {}", name));
}

void FakePort::ruled(const char* operation, const Claim& claim, Verdict verdict, std::int64_t highest,
                     std::size_t count) {
  seen.push_back(
      fmt::format("{} {} {} {} x{}", operation, to_string(verdict), claim.resource.name(), highest, count));
}

void FakePort::raised(const Claim& claim) {
  seen.push_back(fmt::format("raised {}", to_string(claim.token)));
}

void FakePort::failed(const char* operation, const Claim& claim, const Fault& fault, std::size_t count) {
  seen.push_back(fmt::format("{} failed {} x{}: {}", operation, claim.resource.name(), count, fault.message));
}

void FakePort::missing(std::string_view resource) {
  seen.push_back(fmt::format("missing {}", resource));
}

void FakePort::not_signed(const char* operation, const Claim& claim) {
  seen.push_back(fmt::format("{} unsigned {}", operation, claim.resource.name()));
}

Sent FakePort::take() {
  if (sent.empty()) throw std::logic_error("nothing was sent");
  auto first = std::move(sent.front());
  sent.pop_front();
  return first;
}

std::string FakePort::take_told() {
  return std::exchange(told, {});
}

RelayDriver::RelayDriver(RelayOptions options_of_relay)
    : options{std::move(options_of_relay)}, relay{RelayContext{options, port, port, port}} {
  port.relay = &relay;
  options.commands = commands;
  learn_some_commands(*commands);
}

bool RelayDriver::say_on(const std::vector<std::string>& words) {
  const std::vector<std::string_view> views{words.begin(), words.end()};
  return relay.take(views, request_of(words));
}

bool RelayDriver::say(const std::vector<std::string>& words) {
  const bool is_taken = say_on(words);
  relay.flush();
  return is_taken;
}

Sent RelayDriver::reply(std::string_view bytes) {
  auto first = port.take();
  relay.replied(first.channel, bytes);
  return first;
}

void RelayDriver::fence(const std::string& resource, const std::string& token, const std::string& holder) {
  if (!say({"FENCE", resource, token, holder})) throw std::logic_error("FENCE was not taken");
  (void)reply(fmt::format("*4\r\n{}{}:1\r\n:0\r\n", bulk("admitted"), bulk(token)));
  if (port.take_told() != "+OK\r\n") throw std::logic_error("FENCE was not admitted");
}

std::string request_of(const std::vector<std::string>& words) {
  const std::vector<std::string_view> views{words.begin(), words.end()};
  std::string bytes;
  redis::encode(views, bytes);
  return bytes;
}

std::string bulk(std::string_view text) {
  std::string bytes;
  add_bulk(bytes, text);
  return bytes;
}

}  // namespace fenceguard::resp::test
