// A client and a Redis that say anything, in front of a relay and behind it. What leaves for Redis is checked
// (checked_port.hpp); the client gets whole replies, and never more than it made requests; what is owed is
// bounded.
//
// The input: a byte of options, then steps. Run by libFuzzer (FENCEGUARD_FUZZ), and over the kept corpus by
// replay.cpp.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/resp/wire/reply.hpp"
#include "server/resp/wire/request_reader.hpp"
#include "tests/proof/fuzz/input.hpp"
#include "tests/resp/fuzz/checked_port.hpp"

namespace fenceguard::resp::test {
namespace {

// What a client says and Redis answers, so that the fuzzer need not find how it is spelled.
const std::vector<std::vector<std::string>> requests{
    {"FENCE", "a", "7", "h"},
    {"FENCE", "b", "3"},
    {"SET", "{a}:x", "1"},
    {"INCR", "{b}:n"},
    {"MSET", "{a}:x", "1", "{b}:y", "2"},
    {"MULTI"},
    {"EXEC"},
    {"DISCARD"},
    {"WATCH", "k", "{a}:x"},
    {"UNWATCH"},
    {"GET", "{a}:x"},
    {"FENCED", "a", "7", "h", "SET", "{a}:x", "1"},
    {"FENCED", "c", "9", "h", "SEQ", "4", "INCR", "{c}:n"},
    {"FENCED", "a", "7", "h", "GET", "{a}:x"},
    {"BITFIELD", "{a}:x", "GET", "u8", "0"},
    {"LPOP", "{a}:l", "2"},
    {"BLPOP", "{a}:l", "0"},
    {"XREAD", "BLOCK", "0", "STREAMS", "s", "0"},
    {"XREADGROUP", "GROUP", "g", "c", "STREAMS", "{a}:s", ">"},
    {"UNFENCE"},
    {"UNFENCE", "a"},
    {"FENCES"},
    {"FENCE.SHOW", "a"},
    {"FENCE.BEGIN"},
    {"RESET"},
    {"SELECT", "1"},
    {"SELECT", "0"},
    {"HELLO", "2"},
    {"AUTH", "secret"},
    {"COPY", "{a}:x", "{b}:x"},
    {"COPY", "{a}:x", "{a}:y", "DB", "1"},
    {"FLUSHALL"},
    {"EVAL", "x", "1", "{a}:x"},
    {"EVAL", "x", "0"},
    {"SET", "fenceguard:{a}", "1"},
    {"SORT_RO", "k", "GET", "*"},
    {"GET", "fenceguard:{a}"},
    {"SUBSCRIBE", "c"},
    {"UNSUBSCRIBE"},
    {"WAIT", "0", "0"},
    {"PING"},
    {"NEW"},
    {"QUIT"},
    {"DEL", "{a}:x", "{a}:y"},
};
const std::vector<std::string> replies{
    "+OK\r\n",
    "+QUEUED\r\n",
    "*4\r\n$8\r\nadmitted\r\n$1\r\n7\r\n:1\r\n:0\r\n",
    "*4\r\n$5\r\nstale\r\n$1\r\n9\r\n:0\r\n:0\r\n",
    "*4\r\n$5\r\nstale\r\n$1\r\n9\r\n$-1\r\n$-1\r\n",
    "*5\r\n$8\r\nadmitted\r\n$1\r\n7\r\n$-1\r\n$-1\r\n+OK\r\n",
    "*1\r\n+OK\r\n",
    "*-1\r\n",
    "$-1\r\n",
    ":1\r\n",
    "*2\r\n$-1\r\n+OK\r\n",
    "*3\r\n$-1\r\n+OK\r\n:2\r\n",
    "*2\r\n:9007199254740992\r\n$16\r\n9007199254740993\r\n",
    "-NOSCRIPT No matching script.\r\n",
    "-MOVED 3 h:1\r\n",
    "-ASK 3 h:1\r\n",
    "-TRYAGAIN x\r\n",
    "-NOPERM x\r\n",
    "-OOM x\r\n",
    "-EXECABORT x\r\n",
    "-UNINITIALISED x\r\n",
    "-IMPLAUSIBLE x\r\n",
    "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
    "*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n",
};

std::shared_ptr<redis::CommandTable> some_commands() {
  static const auto table = [] {
    auto learned = std::make_shared<redis::CommandTable>();
    learn_some_commands(*learned);
    return learned;
  }();
  return table;
}

bool is_whole(const std::string& reply) {
  ReplyReader reader;
  return reader.read(reply) == ReplyReader::Outcome::whole && reader.size() == reply.size();
}

// As a session: what the relay does not take now is offered again.
class Client {
 public:
  Client(Relay& relay, FakePort& port) : relay_{relay}, port_{port} {}

  void say(std::string_view bytes) {
    if (buffer_.size() < 16'384) buffer_.append(bytes);
  }

  void offer() {
    std::size_t at = 0;
    while (!port_.is_ended) {
      const auto rest = std::string_view{buffer_}.substr(at);
      const auto outcome = reader_.read(rest, limits_);
      if (outcome == RequestReader::Outcome::part) break;
      if (outcome == RequestReader::Outcome::malformed) {
        is_malformed_ = true;
        relay_.break_off(reader_.error());
        break;
      }
      if (outcome == RequestReader::Outcome::whole && !is_taken(rest.substr(0, reader_.size()))) break;
      at += reader_.size();
    }
    buffer_.erase(0, at);
    relay_.flush();
  }

  void check_answers() {
    for (std::string_view rest{port_.told}; !rest.empty(); ++answered_)
      if (!take_value(rest)) violated("the client was told what is no reply", port_.told);
    const auto allowed = taken_ + (is_malformed_ ? 1 : 0);
    if (!has_subscribed_ && answered_ > allowed) violated("more replies than requests", port_.told);
    port_.told.clear();
  }

 private:
  bool is_taken(std::string_view bytes) {
    std::string encoded;
    if (reader_.is_inline()) redis::encode(reader_.words(), encoded);
    if (!relay_.take(reader_.words(), reader_.is_inline() ? encoded : bytes)) return false;
    ++taken_;
    has_subscribed_ = has_subscribed_ || Subscriptions::is_word(reader_.words()[0]);
    return true;
  }

  Relay& relay_;
  FakePort& port_;
  const RequestLimits limits_{.bytes_max = 4'096, .words_max = 64};
  RequestReader reader_;
  std::string buffer_;
  std::size_t taken_ = 0, answered_ = 0;
  bool has_subscribed_ = false, is_malformed_ = false;
};

class Play {
 public:
  explicit Play(fenceguard::test::Input& input) : input_{input} {
    const auto choice = input_.byte();
    options_.commands = some_commands();
    options_.permissions.unfenced = (choice & 1) != 0 ? Unfenced::refuse : Unfenced::read;
    options_.pending_max = 8;
    options_.queue_bytes_max = 4'096;
    port_.in_cluster = (choice & 2) != 0;
    port_.binds_later = (choice & 4) != 0;
    port_.relay = &relay_;
  }

  void step() {
    const auto what = input_.byte();
    switch (what % 8) {
      case 0:
        client_.say(input_.text());
        break;
      case 1:
      case 2:
        client_.say(request_of(requests[input_.byte() % requests.size()]));
        break;
      case 3:
      case 4:
        port_.reply_to_oldest(replies[input_.byte() % replies.size()]);
        break;
      case 5: {
        const auto bytes = input_.text();
        port_.reply_to_oldest(is_whole(bytes) ? bytes : "-ERR no\r\n");
        break;
      }
      case 6:
        port_.lose_oldest((what & 8) != 0);
        break;
      default:
        happen(what >> 3);
    }
    client_.offer();
    client_.check_answers();
    // A run of the script is one of what is owed, and has up to 64 replies.
    if (relay_.pending() > options_.pending_max + 2) violated("more is owed than may be", "");
    port_.seen.clear();
    port_.prepared.clear();
    port_.slept_ms.clear();
  }

 private:
  void happen(int what) {
    switch (what % 4) {
      case 0:
        return port_.woken();
      case 1:
        return port_.learned();
      case 2:
        return port_.bound(true);
      default:
        return port_.bound(false);
    }
  }

  fenceguard::test::Input& input_;
  RelayOptions options_;
  CheckedPort port_;
  Relay relay_{RelayContext{options_, port_, port_, port_}};
  Client client_{relay_, port_};
};

}  // namespace
}  // namespace fenceguard::resp::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 8'192) return -1;
  fenceguard::test::Input input{data, size};
  fenceguard::resp::test::Play play{input};
  while (!input.empty()) play.step();
  return 0;
}
