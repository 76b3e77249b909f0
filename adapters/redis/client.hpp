#pragma once

// Client: a Redis server, or a Redis Cluster, as our scripts see it: commands go to the server that has the
// key's slot. Connections are opened when they are first needed, and opened again when they broke.
//
// The endings of a call are those of Connection; an error that a server answered is a Reply. Nothing is
// repeated but what the server said it had not run: a script that it does not have, a key that moved
// (redirections are followed, a few times), a cluster that is not ready (a few times, a quarter of a second
// in all).
//
// Not thread-safe.

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/redis/keys.hpp"
#include "adapters/redis/wire/cluster.hpp"
#include "adapters/redis/wire/commands.hpp"
#include "adapters/redis/wire/connection.hpp"
#include "adapters/redis/wire/script.hpp"
#include "guard/error.hpp"

namespace fenceguard {
struct Url;
}

namespace fenceguard::redis {

// One run of a script: its keys, which are in one slot, and its further arguments. asked, if it is not none:
// the place of the argument that becomes asked_text where the server was named by an ASK, which is no proof
// that it has what the slot has.
struct Run {
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  const Script& script;
  std::vector<std::string_view> keys;
  std::vector<std::string_view> arguments;
  std::size_t asked = none;
  std::string_view asked_text = "1";
};

// The run as a command: EVALSHA, or EVAL with the text. Views of the run and of key_count, how many keys it
// has.
[[nodiscard]] std::vector<std::string_view> command_of(const Run& run, bool by_hash,
                                                       const std::string& key_count);

class Client {
 public:
  // Connects at once, so that a wrong address shows now: to the first of its endpoints that answers. Throws
  // Unavailable; InvalidInput where there are several endpoints, and what answers is no Redis Cluster: one
  // of several independent servers is never chosen silently.
  // commands: a table to share among clients of one server; without, it has one of its own.
  explicit Client(Address address, std::shared_ptr<CommandTable> commands = nullptr);
  // The same from redis://…; throws InvalidInput for a URL that it does not understand.
  explicit Client(std::string_view url);
  explicit Client(const Url& url);

  [[nodiscard]] const Address& address() const noexcept { return address_; }
  [[nodiscard]] const Keys& keys() const noexcept { return keys_; }
  [[nodiscard]] bool is_cluster() const noexcept { return is_cluster_; }

  // One command at the server of key.
  [[nodiscard]] Reply call(std::string_view key, Arguments arguments);

  // The script at the server of its first key. Throws InvalidInput, with nothing sent, for keys of several
  // slots.
  [[nodiscard]] Reply run(const Run& run);

  // Several, in one round trip per server, each with an ending of its own, in their order. Those with the
  // same first key are run in their order: one that could not be run before a later one was, or had to be
  // sent again after one that is unknown, is Unavailable.
  [[nodiscard]] std::vector<Outcome<Reply>> run_all(std::span<const Run> runs);

  // Has the servers end the connections on which a call ended in OutcomeUnknown, so that it takes effect no
  // more, or did. Throws Unavailable while that is not certain: until the same process of a server was asked
  // and permits it (CLIENT KILL), or the settle time has passed since.
  void settle_lost(std::chrono::milliseconds settle);

  // The connection to the server of key, for what must be said on one connection (WAIT, SUBSCRIBE).
  [[nodiscard]] Connection& connection(std::string_view key);

  // Calls use(connection) for each server that can be reached; what else a call ends in is thrown.
  template <class Use>
  void at_each(const Use& use) {
    for (const auto& server : servers()) {
      try {
        use(link(server).connection);
      } catch (const Error&) {
        if (!is_cluster_) throw;
      }
    }
  }

  // What the server says of commands.
  [[nodiscard]] CommandTable& commands() noexcept { return *commands_; }

 private:
  struct Link {
    Connection connection;
    std::set<std::string_view> scripts;  // the hashes of those that it was sent
  };
  struct Batch;
  // A connection that is gone here, and perhaps not there.
  struct Lost {
    Endpoint server;
    Connection::Server connection;
    std::chrono::steady_clock::time_point at;
  };

  void open();
  void learn_slots(const Endpoint& from, Connection& connection);
  void learn_slots_again();
  [[nodiscard]] Link& link(const Endpoint& server);
  void note_lost(const Endpoint& server, const Connection& connection);
  // Why it is not certain that its server has ended it; empty: it has.
  [[nodiscard]] std::string end_at_server(const Lost& lost);
  [[nodiscard]] Endpoint server_of(std::string_view key);
  [[nodiscard]] std::vector<Endpoint> servers() const;
  void require_one_slot(const Run& run) const;
  [[nodiscard]] Reply run_at(Link& link, const Run& run, bool is_asked);
  template <class Send>
  [[nodiscard]] Reply route(std::string_view key, const Send& send);
  void send(Batch& batch, std::span<const Run> runs);
  void receive(Batch& batch, std::vector<Outcome<Reply>>& outcomes);
  void run_again(std::span<const Run> runs, std::vector<Outcome<Reply>>& outcomes);

  Address address_;
  Keys keys_;
  bool is_cluster_ = false;
  std::map<Endpoint, Link> links_;
  std::vector<Lost> lost_;
  SlotMap slots_;
  std::shared_ptr<CommandTable> commands_;
};

}  // namespace fenceguard::redis
