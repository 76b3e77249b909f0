#pragma once

// What a client must know of Redis Cluster: which of the 16,384 slots a key is in, which server has a slot,
// and what a server's redirection says. See 'Redis cluster specification'.
//
// Values; not thread-safe where they change.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "adapters/redis/address.hpp"
#include "adapters/redis/wire/reply.hpp"

namespace fenceguard::redis {

inline constexpr std::size_t slot_count = 16'384;

// CRC16 of the key's hash tag, or of all of it where it has none.
[[nodiscard]] std::size_t slot_of(std::string_view key) noexcept;

// '-MOVED 3999 127.0.0.1:6381' or '-ASK 3999 127.0.0.1:6381': the server did not run the command.
struct Redirection {
  enum class Kind { moved, ask };
  Kind kind = Kind::moved;
  std::size_t slot = 0;
  Endpoint to;
};

// Nothing for a reply that is none, or that names no server. from: the server that said so; a redirection
// without a host means the same host.
[[nodiscard]] std::optional<Redirection> redirection_of(const Reply& reply, const Endpoint& from);

// True for a reply by which the cluster says that it did not run the command and may do so soon.
[[nodiscard]] bool is_try_again(const Reply& reply) noexcept;

// Which server has which slot.
class SlotMap {
 public:
  // From the answer to CLUSTER SLOTS, given by from.
  void learn(const Reply& slots, const Endpoint& from);
  void set(std::size_t slot, const Endpoint& server);

  // Null: no server, as far as is known.
  [[nodiscard]] const Endpoint* find(std::size_t slot) const noexcept;
  // The servers that have slots, each once.
  [[nodiscard]] const std::vector<Endpoint>& servers() const noexcept { return servers_; }

 private:
  static constexpr std::uint16_t nobody = 0xffff;

  std::uint16_t number_of(const Endpoint& server);

  std::vector<Endpoint> servers_;
  std::vector<std::uint16_t> by_slot_ = std::vector<std::uint16_t>(slot_count, nobody);
};

}  // namespace fenceguard::redis
