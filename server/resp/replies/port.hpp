#pragma once

// What a relay acts through: its client (ClientPort), its connections to Redis (RedisPort), and what is told
// of rulings (RelayObserver). The relay decides and the ports move bytes; every call returns at once, and
// what comes of it is told to the relay later.
//
// Thread safety: one thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "adapters/redis/wire/commands.hpp"
#include "server/resp/command/command_batch.hpp"

namespace fenceguard::resp {

// Whose connections are used.
struct Identity {
  std::string user{};
  std::string password{};

  friend auto operator<=>(const Identity&, const Identity&) = default;
};

// shared: with other clients, for what leaves nothing behind. own: where Redis keeps something for this
// client (WATCH, SUBSCRIBE), or it waits. spare: likewise this client's alone, for one transaction at a time,
// beside what is watched on its own.
enum class Channel { shared, own, spare };

class ClientPort {
 public:
  virtual ~ClientPort() = default;

  // Bytes for the client, behind all that came before.
  virtual void answer(std::string_view bytes) = 0;
  // No request is taken any more, and the connection ends when what was answered is sent.
  virtual void end() = 0;
  [[nodiscard]] virtual std::int64_t connection_number() const = 0;
};

class RedisPort {
 public:
  virtual ~RedisPort() = default;

  // Makes sure of an own or a spare connection, for what follows on it, to the server of slot (negative:
  // any); one that there is stays if it leads there, or if 'stays'. Nothing is sent on another one in its
  // place: what was begun on it does not go on elsewhere.
  virtual void prepare(Channel channel, int slot, bool stays) = 0;
  // Sends what has so many replies, which Relay::replied() is told of one after another; or Relay::lost().
  // slot: that of its keys; negative: it has none. waits: the replies may take any time.
  virtual void send(Channel channel, int slot, std::string_view bytes, std::size_t replies, bool waits) = 0;
  // The same on the shared channel, of one command that only reads: behind what this client sent, and not
  // behind the writes of others, which may wait (CLIENT PAUSE).
  virtual void send_read(int slot, std::string_view bytes) { send(Channel::shared, slot, bytes, 1, false); }
  // The same of a script, which has one reply. with_text: the server has forgotten it.
  virtual void send(Channel channel, int slot, const ScriptCall& call, bool with_text) = 0;
  // Under Redis Cluster: the same number for slots of one server.
  [[nodiscard]] virtual int server_of(int slot) = 0;
  // The server has moved the slot, or is moving it: where the next that is sent for the slot goes. error:
  // 'MOVED ...', for good; 'ASK ...', once.
  virtual void redirect(int slot, std::string_view error) = 0;
  [[nodiscard]] virtual bool is_cluster() const = 0;
  // Ends a connection of the client's own, with what Redis keeps for it; its replies are told no more.
  virtual void close(Channel channel) = 0;

  // Makes sure of a connection for this user and database; Relay::bound() is told of it.
  virtual void bind(const Identity& identity, int database) = 0;
  // Has Redis asked what it calls by this name; Relay::learned() is told when that was done.
  virtual void learn_command(std::string_view name) = 0;
  // A write under this claim is under way whose client is gone.
  [[nodiscard]] virtual bool is_unsettled(int /*database*/, const Claim& /*claim*/) const { return false; }
  // Relay::woken() is called so much later.
  virtual void sleep(int ms) = 0;

  [[nodiscard]] virtual std::string server_version() const = 0;
};

// What is told of rulings, for metrics and the log.
class RelayObserver {
 public:
  virtual ~RelayObserver() = default;
  virtual void ruled(const char* operation, const Claim& claim, Verdict verdict, std::int64_t highest,
                     std::size_t count) = 0;
  virtual void raised(const Claim& claim) = 0;
  virtual void failed(const char* operation, const Claim& claim, const Fault& fault, std::size_t count) = 0;
  virtual void missing(std::string_view resource) = 0;
  virtual void not_signed(const char* operation, const Claim& claim) = 0;
};

}  // namespace fenceguard::resp
