#pragma once

// HolderCutter: while a call waits for the lock of a fence's row, or of a lease's, ends (KILL) the sessions
// that keep it: those in which an older claim was admitted, and whose transaction is still open; and after a
// while whoever else keeps it. It looks on a connection and a thread of its own. Needs the privilege PROCESS,
// and CONNECTION ADMIN for sessions of other users.
//
// Not thread-safe; the waiting connection may be used meanwhile.

#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "adapters/mariadb/connection.hpp"
#include "guard/claim.hpp"

namespace fenceguard::mariadb {

class HolderCutter {
 public:
  // waiting: the server's number of the session that waits. newer: the claim for which it does; nothing: for
  // none, and all holders are in the way.
  HolderCutter(Address address, std::uint64_t waiting, std::optional<Claim> newer);
  // Ends the looking, and waits for that.
  ~HolderCutter() { stop(); }
  HolderCutter(const HolderCutter&) = delete;
  HolderCutter& operator=(const HolderCutter&) = delete;

  // The same; afterwards a sentence on why sessions could not be ended, or nothing.
  const std::string& stop();

 private:
  using Session = std::pair<std::string, std::string>;  // number, start of its transaction
  using Sessions = std::map<Session, bool>;             // whether a claim was admitted in it

  void watch(const std::stop_token& stop);
  // Whether the claim is still newer than the fence, changes that are not committed yet included.
  [[nodiscard]] bool is_newer(Connection& connection) const;
  [[nodiscard]] Sessions look(Connection& connection);

  const Address address_;
  const std::uint64_t waiting_;
  const std::optional<Claim> newer_;
  int looks_ = 0;
  std::string objection_;
  std::jthread thread_;
};

}  // namespace fenceguard::mariadb
