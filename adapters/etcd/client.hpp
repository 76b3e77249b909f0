#pragma once

// Client: an etcd cluster by its v3 JSON gateway (etcd 3.4 or newer, paths /v3/...), over libcurl with
// connections that are kept and reused. It goes to another endpoint when the present one cannot be reached.
//
// A call that only reads throws Unavailable where no answer came. One that writes throws OutcomeUnknown where
// it was, or may have been, sent and no final answer came ('request timed out' and a change of the leader are
// none), and Unavailable where certainly nothing was done. Nothing that writes is ever repeated here, but for
// a call that was refused before it was looked at: a token of the authentication that had run out, or a
// connection that was never made; and a call of which the caller says so (Hedging).
//
// After an answer that the database is out of space a call that writes is unknown too: a member may have
// applied it all the same.
//
// Nothing may be decided by a read (etcd 3.4 can answer from the past after a pause), only by a transaction
// that writes.
//
// Thread-safe.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/etcd/address.hpp"
#include "adapters/etcd/txn.hpp"
#include "adapters/etcd/wire/answers.hpp"
#include "guard/support/coalesced_scan.hpp"

namespace fenceguard::etcd {

// For a call that may be done any number of times: after each delay without an answer the next endpoint is
// asked as well, so that members that hang do not use up the time that there is, and one that is slow is
// heard all the same. The first final answer counts; each has the address's time-out. Unknown only where none
// of them gave one.
struct Hedging {
  std::chrono::milliseconds delay{};
};

class Client {
 public:
  // Connects to nothing yet. Throws InvalidInput for a bad URL.
  explicit Client(std::string_view url);
  explicit Client(const Address& address);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  [[nodiscard]] const Address& address() const noexcept;

  // What the keys and values of a transaction may have together: etcd's own default (--max-request-bytes). A
  // server that is sent more than its transport takes answers in words that leave open what became of it.
  static constexpr std::size_t txn_bytes_max = 1'572'864;

  // Writes, unless both branches only read. InvalidInput for more than txn_bytes_max.
  [[nodiscard]] TxnAnswer txn(const Txn& txn, std::optional<Hedging> hedging = {});
  // A linearizable read. See above: nothing may be decided by it.
  [[nodiscard]] OpAnswer range(const Op& range);

  // A lease with an id of the caller's choosing, so that a lost answer can be asked for again: one that
  // exists is granted again. etcd counts in whole seconds, rounds up, and has a least.
  [[nodiscard]] LeaseAnswer grant(std::int64_t id, std::chrono::milliseconds ttl);
  // Renews to the full time to live.
  [[nodiscard]] LeaseAnswer keep_alive(std::int64_t id, std::optional<Hedging> hedging = {});
  // Deletes its keys with it. False if there was none.
  bool revoke(std::int64_t id);
  [[nodiscard]] LeaseAnswer time_to_live(std::int64_t id);

  // Follows key from revision on, on a connection of its own, until it was deleted (true), the connection
  // broke, quiet_max has passed, or stop was requested (false). Never a proof of anything: look again by a
  // transaction.
  struct Deletion {
    std::string key;
    std::int64_t revision = 0;
    std::chrono::milliseconds quiet_max{};
    std::stop_token stop{};
    Meanwhile meanwhile{};  // if it has a call
  };
  bool wait_for_delete(const Deletion& deletion);

  using Member = MemberAnswer;
  [[nodiscard]] Member status(const std::string& endpoint);

  // At every fence of the namespace, shared by all users of this client: see fence_mark.hpp.
  [[nodiscard]] CoalescedScan& full_look() noexcept { return full_look_; }

 private:
  class Wire;
  std::unique_ptr<Wire> wire_;
  CoalescedScan full_look_;
};

}  // namespace fenceguard::etcd
