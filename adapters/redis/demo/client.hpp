#pragma once

// Client of a demonstration: adds to the account, with connections of its own, and everything that it does is
// noted with what the server answered. Without the guard it uses plain commands, as they stand in many
// guides; with it, every read and write carries its claim.
//
// Not thread-safe.

#include <optional>
#include <string>
#include <variant>

#include "adapters/redis/client.hpp"
#include "adapters/redis/demo/server.hpp"
#include "adapters/redis/guard.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::redis::demos {

inline constexpr const char* account = "accounts/42";
inline constexpr const char* balance_key = "{accounts/42}:balance";
inline constexpr const char* lock_key = "lock:accounts/42";

// The account in a storage, from the point of view of nobody.
void open_account(const Server& storage, std::int64_t balance);
[[nodiscard]] std::int64_t balance_of(const Server& storage);
// As 'fenceguard fence init' does with a source that has drawn nothing before.
void initialise_fences(const Server& storage, std::int64_t floor);

// '170, should be 200: an update is LOST', or '200: nothing is lost'.
[[nodiscard]] std::string balance_sentence(std::int64_t balance, std::int64_t expected);

// What a server answered, for people.
[[nodiscard]] std::string shown(const Reply& reply);

class Actor {
 public:
  // lane: its own; storage_lane: that of the server with the account.
  Actor(Stage& stage, std::string lane, const Server& storage, std::string storage_lane);

  [[nodiscard]] const std::string& lane() const noexcept { return lane_; }

  // One plain command to a server that stands in lane where. words: how it is told, unless the command
  // itself.
  Reply ask(const Server& server, const std::string& where, const std::vector<std::string>& command,
            TaleEvent::Tone tone = TaleEvent::Tone::plain);

  // Without a claim. write() notes it as damage where the balance has changed since it was read.
  [[nodiscard]] std::int64_t read();
  void write(std::int64_t base, std::int64_t add);

  // With one. A read advances first; refused, it answers nothing, and verdict() why.
  [[nodiscard]] std::optional<std::int64_t> read(const Claim& claim);
  Verdict write(const Claim& claim, std::int64_t base, std::int64_t add);
  [[nodiscard]] Verdict verdict() const noexcept { return verdict_; }

  // Takes the lock from a source that stands in lane where; no lease is kept alive for it. Nothing if it is
  // held.
  [[nodiscard]] std::optional<Claim> take(TokenSource& source, const std::string& where,
                                          std::chrono::milliseconds ttl);
  // The same, asking until it is granted, for at most ten seconds; only the grant is told.
  [[nodiscard]] Claim take_when_free(TokenSource& source, const std::string& where,
                                     std::chrono::milliseconds ttl);
  Release release(TokenSource& source, const std::string& where, const Claim& claim);

  // What it does or suffers without asking anybody.
  void note(std::string what, TaleEvent::Tone tone = TaleEvent::Tone::plain);

 private:
  [[nodiscard]] std::variant<Grant, Held> try_take(TokenSource& source, std::chrono::milliseconds ttl) const;
  void note_grant(const std::variant<Grant, Held>& answer, const std::string& where,
                  std::chrono::milliseconds ttl);
  void note_ruling(const Claim& claim, std::string what, const Ruling& ruling, std::string admitted);

  Stage& stage_;
  std::string lane_;
  const Server& storage_;
  std::string storage_lane_;
  redis::Client client_;
  redis::Guard guard_;
  Verdict verdict_ = Verdict::admitted;
};

}  // namespace fenceguard::redis::demos
