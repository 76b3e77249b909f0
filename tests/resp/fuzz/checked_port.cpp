#include "tests/resp/fuzz/checked_port.hpp"

#include <cstdio>
#include <cstdlib>

#include "adapters/redis/wire/scripts.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp::test {
namespace {

using redis::resource_of_key;

const redis::CommandTable& known_commands() {
  static redis::CommandTable table;
  static const bool is_learned = [] {
    learn_some_commands(table);
    return true;
  }();
  (void)is_learned;
  return table;
}

// The resource of a fence's key; empty for another key.
std::string resource_of_fence(std::string_view key) {
  constexpr std::string_view begin = "fenceguard:{";
  if (!key.starts_with(begin) || !key.ends_with('}')) return {};
  return std::string{key.substr(begin.size(), key.size() - begin.size() - 1)};
}

std::vector<std::string_view> keys_of_known(const std::vector<std::string_view>& words,
                                            std::string_view bytes) {
  const auto* facts = known_commands().find(words);
  if (facts == nullptr) violated("a command that is not known was sent", bytes);
  std::vector<std::string_view> keys;
  redis::keys_of(*facts, words, keys);
  if (keys.empty()) violated("a command without keys was judged", bytes);
  for (const auto key : keys)
    if (key.starts_with("fenceguard:")) violated("a key of fenceguard's own was sent", bytes);
  return keys;
}

}  // namespace

bool CheckedPort::Judgement::covers(std::string_view key) const {
  const std::string resource{resource_of_key(key)};
  return is_begun && watched.contains(resource) && admitted.contains(resource);
}

void CheckedPort::send(Channel channel, int slot, std::string_view bytes, std::size_t replies, bool waits) {
  check_requests(channel, bytes);
  FakePort::send(channel, slot, bytes, replies, waits);
  owed_.push_back(replies);
}

void CheckedPort::send(Channel channel, int slot, const ScriptCall& call, bool with_text) {
  if (call.script != &redis::scripts::advance() && call.script != &redis::scripts::look()) check_run(call);
  FakePort::send(channel, slot, call, with_text);
  owed_.push_back(1);
}

void CheckedPort::close(Channel channel) {
  forget(channel);
}

void CheckedPort::bind(const Identity& identity, int database) {
  if (binds_later) ++bindings_;
  FakePort::bind(identity, database);
}

void CheckedPort::learn_command(std::string_view name) {
  ++questions_;
  FakePort::learn_command(name);
}

void CheckedPort::sleep(int ms) {
  ++pauses_;
  FakePort::sleep(ms);
}

void CheckedPort::bound(bool is_reached) {
  if (bindings_ == 0) return;
  --bindings_;
  relay->bound(is_reached ? "" : "it cannot be reached", false);
}

void CheckedPort::learned() {
  if (questions_ == 0) return;
  --questions_;
  relay->learned();
}

void CheckedPort::woken() {
  if (pauses_ == 0) return;
  --pauses_;
  relay->woken();
}

void CheckedPort::reply_to_oldest(const std::string& bytes) {
  if (sent.empty()) return;
  const auto oldest = sent.front();
  if (--owed_.front() == 0) pop();
  if (oldest.channel != Channel::shared)
    take_answer(judgements_[static_cast<std::size_t>(oldest.channel)], oldest, bytes);
  relay->replied(oldest.channel, bytes);
}

void CheckedPort::lose_oldest(bool was_sent) {
  if (sent.empty()) return;
  const auto channel = sent.front().channel;
  channel == Channel::shared ? pop() : forget(channel);
  relay->lost(channel, was_sent, "the line is cut");
}

void CheckedPort::pop() {
  sent.pop_front();
  owed_.pop_front();
}

void CheckedPort::forget(Channel channel) {
  judgements_[static_cast<std::size_t>(channel)] = {};
  for (std::size_t i = sent.size(); i-- > 0;) {
    if (sent[i].channel != channel) continue;
    sent.erase(sent.begin() + static_cast<std::ptrdiff_t>(i));
    owed_.erase(owed_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void CheckedPort::take_answer(Judgement& judgement, const Sent& asked, std::string_view bytes) {
  const auto words = asked.words();
  if (asked.script == &redis::scripts::advance()) {
    const auto answer = take_value(bytes);
    auto inside = answer ? answer->inside : std::string_view{};
    const auto verdict = take_value(inside);
    if (verdict && verdict->text == "admitted") judgement.admitted.insert(resource_of_fence(words.at(1)));
  } else if (words.at(0) == "MULTI") {
    judgement.is_begun = !bytes.starts_with('-');
  } else if (words.at(0) == "WATCH" && bytes.starts_with('-')) {
    judgement.watched.clear();
  }
}

void CheckedPort::check_requests(Channel channel, std::string_view bytes) {
  auto& judgement = judgements_[static_cast<std::size_t>(channel)];
  for (auto rest = bytes; !rest.empty();) {
    const auto request = take_value(rest);
    if (!request || request->kind != '*') violated("what was sent is no request", bytes);
    Views words;
    auto inside = request->inside;
    for (auto word = take_value(inside); word; word = take_value(inside)) words.push_back(word->text);
    if (words.empty()) violated("an empty request was sent", bytes);
    const auto name = words[0];
    // Within MULTI, UNWATCH is queued, and takes effect behind the commands before EXEC did.
    if (name == "EXEC" || name == "DISCARD" || (name == "UNWATCH" && !judgement.is_begun)) judgement = {};
    if (name == "WATCH") {
      for (const auto key : words)
        if (const auto resource = resource_of_fence(key); !resource.empty())
          judgement.watched.insert(resource);
    }
    check_request(judgement, channel, words, bytes);
  }
}

void CheckedPort::check_request(const Judgement& judgement, Channel channel, const Views& words,
                                std::string_view bytes) {
  const auto* facts = known_commands().find(words);
  const bool has_keys = facts != nullptr && !facts->keys.empty() && words[0] != "WATCH";
  const bool is_write = facts != nullptr && facts->writes;
  if (has_keys || is_write) (void)keys_of_known(words, bytes);
  if (!is_write) return;
  if (channel == Channel::shared) violated("a write was sent unjudged", bytes);
  for (const auto key : keys_of_known(words, bytes))
    if (!judgement.covers(key)) violated("a write was sent whose key was not judged", bytes);
}

void CheckedPort::check_run(const ScriptCall& call) const {
  const auto all = Sent{.bytes = call.rest, .script = call.script}.words();
  const auto claim_at = std::stoul(all.at(0)) + 1;
  const auto resource = resource_of_fence(all.at(1));
  if (resource.empty()) violated("a run without a fence was sent", call.rest);
  Views words{all.begin() + static_cast<std::ptrdiff_t>(claim_at) + 1, all.end()};
  std::vector<std::size_t> sizes{words.size()};
  if (call.script == &redis::scripts::guarded(in_cluster)) {
    const std::string layout{words.at(0)};
    words.erase(words.begin());
    sizes.clear();
    for (auto at = layout.find(' '); at != layout.npos; at = layout.find(' ', at + 1))
      sizes.push_back(static_cast<std::size_t>(std::abs(std::stol(layout.substr(at + 1)))));
  }
  auto next = words.begin();
  for (const auto size : sizes) {
    if (words.end() - next < static_cast<std::ptrdiff_t>(size)) violated("words are missing", call.rest);
    const Views one{next, next + static_cast<std::ptrdiff_t>(size)};
    next += static_cast<std::ptrdiff_t>(size);
    for (const auto key : keys_of_known(one, call.rest))
      if (resource_of_key(key) != resource) violated("a key of another resource was judged", call.rest);
  }
  if (next != words.end()) violated("words are left", call.rest);
}

}  // namespace fenceguard::resp::test
