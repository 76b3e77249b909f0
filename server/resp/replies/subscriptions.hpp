#pragma once

// Subscriptions: what one client has subscribed to, as Redis has confirmed it, and which confirmations are
// awaited. While there are any, Redis sends messages at any time, and takes few other commands.
//
// Not thread-safe.

#include <deque>
#include <set>
#include <string>
#include <string_view>

#include "adapters/redis/wire/connection.hpp"

namespace fenceguard::resp {

class Subscriptions {
 public:
  // A word of the family (P|S)SUBSCRIBE, (P|S)UNSUBSCRIBE, in any case; and which of it.
  [[nodiscard]] static bool is_word(std::string_view name) noexcept;
  [[nodiscard]] static bool is_end(std::string_view name) noexcept;
  [[nodiscard]] static bool is_of_shards(std::string_view name) noexcept;

  // From the first command that is sent until Redis confirmed that there are none.
  [[nodiscard]] bool is_active() const noexcept { return !awaited_.empty() || count() > 0; }
  [[nodiscard]] bool is_awaiting() const noexcept { return !awaited_.empty(); }
  // Commands that were sent and not answered.
  [[nodiscard]] std::size_t awaited() const noexcept { return awaited_.size(); }
  // Of one client, in all: they are kept, here and in Redis.
  static constexpr std::size_t names_max = 10'000, bytes_max = std::size_t{4} << 20;
  // Whether those of a command may be added. While confirmations are awaited it is not certain that not.
  [[nodiscard]] bool has_room(redis::Arguments words) noexcept;
  // A bare UNSUBSCRIBE has as many confirmations as there are subscriptions: those must be known.
  [[nodiscard]] bool can_send(redis::Arguments words) const noexcept {
    return words.size() > 1 || awaited_.empty();
  }
  // The command was sent.
  void sent(redis::Arguments words);
  // A PING or so was sent, which has one reply.
  void sent_other() { awaited_.push_back({1, {}}); }

  // Something came on the connection.
  void received(std::string_view reply);
  void clear();

 private:
  [[nodiscard]] std::size_t count() const noexcept {
    return channels_.size() + patterns_.size() + shard_channels_.size();
  }
  struct Size {
    std::size_t names = 0, bytes = 0;
  };
  // Of a command.
  struct Awaited {
    std::size_t confirmations;
    Size asked;  // for more
  };
  [[nodiscard]] std::set<std::string, std::less<>>& set_of(std::string_view name) noexcept;
  // Of what a command would add.
  [[nodiscard]] Size size_of(redis::Arguments words) noexcept;
  void end_first();

  std::set<std::string, std::less<>> channels_, patterns_, shard_channels_;
  std::deque<Awaited> awaited_;
  std::size_t bytes_ = 0;  // of the names
  Size asked_{};           // of all that is awaited
};

}  // namespace fenceguard::resp
