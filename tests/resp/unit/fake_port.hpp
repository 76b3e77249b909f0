#pragma once

// FakePort: the port of a relay without sockets. What the relay sends is recorded, what Redis answers is said
// by the test, and what the client gets is one text. Beside it, a table of commands as a server describes
// them.
//
// Not thread-safe.

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/resp/relay/relay.hpp"

namespace fenceguard::resp::test {

using Words = std::vector<std::string>;
using Views = std::vector<std::string_view>;

// What was sent: bytes, or a script with the words behind its hash.
struct Sent {
  Channel channel = Channel::shared;
  int slot = -1;
  std::string bytes{};  // of a script: 'rest'
  std::size_t replies = 1;
  const redis::Script* script = nullptr;
  bool with_text = false;

  // The words of the first request in it, or of the script's call.
  [[nodiscard]] std::vector<std::string> words() const;
};

class FakePort : public ClientPort, public RedisPort, public RelayObserver {
 public:
  // ClientPort and RedisPort
  void answer(std::string_view bytes) override { told.append(bytes); }
  void end() override { is_ended = true; }
  void prepare(Channel channel, int slot, bool stays) override;
  void send(Channel channel, int slot, std::string_view bytes, std::size_t replies, bool waits) override;
  void send(Channel channel, int slot, const ScriptCall& call, bool with_text) override;
  [[nodiscard]] int server_of(int slot) override { return slot < 0 ? 0 : slot % 3; }
  void redirect(int slot, std::string_view error) override;
  [[nodiscard]] bool is_cluster() const override { return in_cluster; }
  void close(Channel channel) override;
  void bind(const Identity& identity, int database) override;
  void learn_command(std::string_view name) override;
  void sleep(int ms) override { slept_ms.push_back(ms); }
  [[nodiscard]] std::string server_version() const override { return "7.0.15"; }
  [[nodiscard]] std::int64_t connection_number() const override { return 5; }

  // RelayObserver
  void ruled(const char* operation, const Claim& claim, Verdict verdict, std::int64_t highest,
             std::size_t count) override;
  void raised(const Claim& claim) override;
  void failed(const char* operation, const Claim& claim, const Fault& fault, std::size_t count) override;
  void missing(std::string_view resource) override;
  void not_signed(const char* operation, const Claim& claim) override;

  // Takes the oldest that was sent and not taken.
  Sent take();
  [[nodiscard]] std::string take_told();

  Relay* relay = nullptr;  // bound at once, unless binds_later
  bool in_cluster = false;
  bool binds_later = false;
  std::deque<Sent> sent;
  std::string told;
  bool is_ended = false;
  std::vector<int> slept_ms;
  std::vector<std::string> prepared;  // 'own 5', 'own 5 stays'
  std::vector<std::string> seen;      // 'write stale a 3', of the observer; 'close own', 'bind 3', 'learn X'
};

// As 'COMMAND INFO' of Redis 7 describes some commands of each kind.
void learn_some_commands(redis::CommandTable& table);

// A relay with a fake port, as its client and its Redis see it.
class RelayDriver {
 public:
  explicit RelayDriver(RelayOptions options = {});

  // One request of the client, and no more follows at once. False: not taken now.
  bool say(const std::vector<std::string>& words);
  // One that others follow.
  bool say_on(const std::vector<std::string>& words);
  // The oldest thing sent is answered; what was sent is returned.
  Sent reply(std::string_view bytes);
  // The replies are those of one thing.
  void lose(Channel channel, bool was_sent) { relay.lost(channel, was_sent, "the line is cut"); }
  // Says FENCE and has it admitted.
  void fence(const std::string& resource, const std::string& token, const std::string& holder = "h");

  FakePort port;
  std::shared_ptr<redis::CommandTable> commands = std::make_shared<redis::CommandTable>();
  RelayOptions options;
  Relay relay;
};

// 'a request' as it is sent.
[[nodiscard]] std::string request_of(const std::vector<std::string>& words);
[[nodiscard]] std::string bulk(std::string_view text);

}  // namespace fenceguard::resp::test
