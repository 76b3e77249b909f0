#pragma once

// Client: a Redis server, or a Redis Cluster, as our scripts see it: commands go to the server that has the
// key's slot. Connections are opened when they are first needed, and opened again when they broke.
//
// The endings of a call are those of Connection; an error that a server answered is a Reply. Nothing is
// repeated but what the server said it had not run: a script that it does not have, a key that moved.
//
// Not thread-safe.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/redis/commands.hpp"
#include "adapters/redis/connection.hpp"
#include "adapters/redis/keys.hpp"
#include "adapters/redis/script.hpp"
#include "guard/error.hpp"

namespace fenceguard {
struct Url;
}

namespace fenceguard::redis {

// One run of a script: its keys, which are in one slot, and its further arguments.
struct Run {
  const Script& script;
  std::vector<std::string_view> keys;
  std::vector<std::string_view> arguments;
};

class Client {
 public:
  // Connects at once, so that a wrong address shows now. Throws Unavailable.
  explicit Client(Address address);
  // The same from redis://…; throws InvalidInput for a URL that it does not understand.
  explicit Client(std::string_view url);
  explicit Client(const Url& url);

  [[nodiscard]] const Address& address() const noexcept { return address_; }
  [[nodiscard]] const Keys& keys() const noexcept { return keys_; }
  [[nodiscard]] bool is_cluster() const noexcept { return is_cluster_; }

  // One command at the server of key.
  [[nodiscard]] Reply call(std::string_view key, Arguments arguments);

  // The script at the server of its first key.
  [[nodiscard]] Reply run(const Run& run);

  // Several, in one round trip per server, each with an ending of its own, in their order.
  [[nodiscard]] std::vector<Outcome<Reply>> run_all(std::span<const Run> runs);

  // The connection to the server of key, for what must be said on one connection (WAIT, SUBSCRIBE).
  [[nodiscard]] Connection& connection(std::string_view key);

  // What the server says of commands.
  [[nodiscard]] CommandTable& commands() noexcept { return commands_; }

 private:
  Address address_;
  Keys keys_;
  bool is_cluster_ = false;
  std::optional<Connection> connection_;
  CommandTable commands_;
};

}  // namespace fenceguard::redis
