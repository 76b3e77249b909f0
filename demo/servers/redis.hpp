#pragma once

// RedisServer: a real redis-server of a demonstration, without data on disk unless its options say otherwise.
//
// Not thread-safe.

#include "adapters/redis/wire/connection.hpp"
#include "demo/kit/client.hpp"
#include "demo/servers/local_server.hpp"

namespace fenceguard::demo {

// Of the plain lock of many guides.
inline constexpr const char* lock_key = "lock:accounts/42";

class RedisServer : public LocalServer {
 public:
  // options: further words of its command line. Throws Unavailable where it cannot be started.
  explicit RedisServer(Harness& harness, std::vector<std::string> options = {},
                       std::map<std::string, std::string> environment = {});

  // redis://127.0.0.1:PORT, with time-outs short enough for a scenario.
  [[nodiscard]] std::string url() const;

  // For clients whose lock, if it has tokens, and whose account are both in this server.
  [[nodiscard]] ClientOptions client_options(const std::string& lane, bool guarded) const;

  // One command on a connection of its own.
  [[nodiscard]] redis::Reply call(const std::vector<std::string>& words) const;
  // The same from a client (its lane), as an event with the answer of lane target.
  redis::Reply ask(const std::string& actor, const std::string& target, const std::vector<std::string>& words,
                   Tone tone = Tone::plain);
  // SET lock_key NX PX: the lock without a token. WHO is the last letter of the lane.
  redis::Reply take_plainly(const std::string& actor, const std::string& target,
                            std::chrono::milliseconds ttl, Tone tone = Tone::token);
  // The value of a line of INFO; empty if there is none.
  [[nodiscard]] std::string info(const std::string& section, const std::string& name) const;
  // Kills it, and starts it again as after its disk was replaced.
  void restart_empty();

 private:
  [[nodiscard]] Command command() override;
  [[nodiscard]] bool serves() override;
  [[nodiscard]] bool is_reason(const std::string& line) const override;

  std::vector<std::string> options_;
  std::map<std::string, std::string> environment_;
};

// What a server answered, for people.
[[nodiscard]] std::string shown(const redis::Reply& reply);

}  // namespace fenceguard::demo
