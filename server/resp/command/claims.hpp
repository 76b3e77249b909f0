#pragma once

// The claims of one connection: what it said by FENCE, for the database that was selected then, and what
// became of each. And how a client writes one.
//
// Not thread-safe.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/redis/wire/connection.hpp"
#include "guard/claim.hpp"
#include "guard/judge.hpp"

namespace fenceguard::resp {

// A claim as it is held. Once the fence refused it, it is refused from memory: only Redis admits.
struct HeldClaim {
  explicit HeldClaim(Claim said) : claim{std::move(said)} {}

  const Claim claim;
  std::optional<Verdict> refusal{};        // stale or conflict
  std::int64_t highest = 0;                // with it
  std::string key_words{}, claim_words{};  // what every run under it begins with, as it is sent
  // By which command, and which transaction, of its connection it was taken last.
  std::uint64_t in_command = 0, in_transaction = 0;

  void refuse(Verdict verdict, std::int64_t highest_token) noexcept {
    refusal = verdict;
    highest = highest_token;
  }
};
using HeldClaimPtr = std::shared_ptr<HeldClaim>;

// Resources to which a client holds no claim, of commands that it may say as long as they have no fence.
using Unclaimed = std::set<std::string, std::less<>>;

// What a command's keys need: claims, and where a client may do without, that there is no fence.
struct Needs {
  std::vector<HeldClaimPtr> claims{};
  Unclaimed unclaimed{};

  [[nodiscard]] bool empty() const noexcept { return claims.empty() && unclaimed.empty(); }
};

class Claims {
 public:
  // Takes the place of an earlier claim to the same resource.
  void hold(int database, HeldClaimPtr claim);
  // Null: none is held.
  [[nodiscard]] const HeldClaimPtr* find(int database, std::string_view resource) const;
  // False: none was held.
  bool drop(int database, std::string_view resource);
  void drop_database(int database);
  void clear() noexcept;
  // A claim has been held, even if it is not any more.
  [[nodiscard]] bool has_held() const noexcept { return has_held_; }
  // Before add_to() of its resources.
  void begin_command() noexcept { ++commands_seen_; }
  // Adds the claim to the resource, once for each command. False: none is held.
  [[nodiscard]] bool add_to(Needs& needs, int database, std::string_view resource) const;
  // Of all databases, with these.
  [[nodiscard]] std::vector<std::pair<int, HeldClaimPtr>> list_all() const;
  // Of the database, in the order of their resources.
  [[nodiscard]] std::vector<HeldClaimPtr> list(int database) const;
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

  // More are refused, so that no client takes memory without end.
  static constexpr std::size_t most = 10'000;

 private:
  // By database and resource.
  std::map<int, std::map<std::string, HeldClaimPtr, std::less<>>> held_;
  std::size_t count_ = 0;
  bool has_held_ = false;
  std::uint64_t commands_seen_ = 0;
};

// What a client said: FENCE RESOURCE TOKEN [HOLDER] [SIG s], or
// FENCED RESOURCE TOKEN HOLDER [SIG s] [SEQ n] COMMAND ...
struct SpokenClaim {
  Claim claim;
  std::string_view signature{};  // empty: none
  redis::Arguments command{};    // of FENCED
};

// Throw InvalidInput with a sentence.
[[nodiscard]] SpokenClaim parse_fence(redis::Arguments words);
[[nodiscard]] SpokenClaim parse_fenced(redis::Arguments words);

}  // namespace fenceguard::resp
