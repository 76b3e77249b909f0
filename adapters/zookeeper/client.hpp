#pragma once

// Client: the session that guards and fences share. It is opened by the first call that needs it and, once it
// has expired, by the next one anew.
//
//   zookeeper::Client client{"zookeeper://h1,h2,h3/app"};
//   zookeeper::Guard guard{client};
//
// Thread-safe; calls of many threads go side by side over the one connection.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "adapters/zookeeper/fences/fence_paths.hpp"
#include "adapters/zookeeper/session.hpp"
#include "guard/support/coalesced_scan.hpp"

namespace fenceguard::zookeeper {

class Client {
 public:
  // Connects to nothing yet. Throws InvalidInput for a bad URL.
  explicit Client(std::string_view url);
  explicit Client(Address address);

  // A session, connected a moment ago, and the number of its connection, see Session::generation(): what was
  // seen under one generation may have been undone in the next, by a restored backup.
  struct Connection {
    std::shared_ptr<Session> session;
    std::uint64_t generation = 0;

    // Over this connection, or not at all: Unavailable where it broke meanwhile.
    [[nodiscard]] Pending<MultiAnswer> begin_multi(const std::vector<Op>& ops) const {
      return session->begin_multi(ops, generation);
    }
    MultiAnswer multi(const std::vector<Op>& ops) const { return begin_multi(ops).get(); }
  };
  // Waits for a connection. Throws Unavailable if none comes about within the address's timeout.
  [[nodiscard]] Connection connection();

  [[nodiscard]] const Address& address() const noexcept { return address_; }
  [[nodiscard]] const FencePaths& paths() const noexcept { return paths_; }

  // What all users of this client share of what tells them the numbers of the namespace.
  struct Looks {
    CoalescedScan fences;    // at every fence: see highest_mark.hpp
    CoalescedScan position;  // at what the token source would draw
  };
  [[nodiscard]] Looks& looks() noexcept { return looks_; }

 private:
  [[nodiscard]] std::shared_ptr<Session> living_session();

  const Address address_;
  const FencePaths paths_;
  std::mutex mutex_;  // guards the following
  std::shared_ptr<Session> session_;
  Looks looks_;
};

// The address in a zookeeper: URL that may also hold the parameters of the token source: code that opens
// something else by the same URL ignores them. Thread-safe.
[[nodiscard]] Address address_beside_source(const Url& url);

}  // namespace fenceguard::zookeeper
