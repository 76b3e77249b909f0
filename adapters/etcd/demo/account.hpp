#pragma once

// The account of a story, in an etcd, and two ways to its balance, each of which is one transaction: with a
// check of one's own, as people write it, and with the guard. Everything is noted with what etcd answered.
//
// Not thread-safe.

#include <cstdint>
#include <optional>
#include <string>

#include "adapters/etcd/client.hpp"
#include "adapters/etcd/demo/member.hpp"
#include "adapters/etcd/guard.hpp"

namespace fenceguard::etcd::demos {

inline constexpr const char* account = "accounts/42";
inline constexpr const char* storage_lane = "storage";

// From the point of view of nobody. open_account() also sets the mark of the check to nothing.
void open_account(const Member& storage, std::int64_t balance);
void clear_mark(const Member& storage);
[[nodiscard]] std::int64_t balance_of(const Member& storage);
// As 'fenceguard fence init' does.
void initialise_fences(const Member& storage, Token floor);

// '150, should be 180: an update is LOST', or '180: nothing is lost'.
[[nodiscard]] std::string balance_sentence(std::int64_t balance, std::int64_t expected);

// The check of one's own: the number of the lock is shown with every read and write, the highest one is kept
// as the mark, and a lower one is refused. Sound as long as the numbers rise.
class CheckedAccount {
 public:
  // lane: whose.
  CheckedAccount(Stage& stage, std::string lane, const Member& storage)
      : stage_{stage}, lane_{std::move(lane)}, client_{storage.address()} {}

  // Nothing if the number was refused. Noted as damage where it is refused although its owner has the lock.
  [[nodiscard]] std::optional<std::int64_t> read(std::int64_t number);
  // False if refused. Noted as damage where the balance is another than base.
  bool write(std::int64_t number, std::int64_t base, std::int64_t add);

 private:
  Stage& stage_;
  std::string lane_;
  Client client_;
};

// Every read and write carries its claim.
class GuardedAccount {
 public:
  GuardedAccount(Stage& stage, std::string lane, const Member& storage)
      : stage_{stage}, lane_{std::move(lane)}, client_{storage.address()}, guard_{client_} {}

  // A read advances first.
  [[nodiscard]] std::optional<std::int64_t> read(const Claim& claim);
  Verdict write(const Claim& claim, std::int64_t base, std::int64_t add);
  // Of the last call.
  [[nodiscard]] const Ruling& ruling() const noexcept { return ruling_; }

 private:
  void note(const Claim& claim, const std::string& what, const std::string& admitted);

  Stage& stage_;
  std::string lane_;
  Client client_;
  Guard guard_;
  Ruling ruling_;
};

}  // namespace fenceguard::etcd::demos
