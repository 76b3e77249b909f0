#pragma once

// Greeter: what is said first on a connection to Redis: as whom, in which database, and what the server is.
// As redis::Connection greets.
//
// Thread safety: the loop's thread only.

#include <optional>
#include <string>

#include "adapters/redis/address.hpp"
#include "server/net/read/read_buffer.hpp"
#include "server/net/transport.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {

// What the server said when it was greeted.
struct Greeting {
  std::string error{};          // why there is no link; empty: there is one
  bool needs_password = false;  // it refuses everything but AUTH
  std::string version{};
  bool is_cluster = false;
  // The connection's number and address, as the server has them; empty: it did not say.
  std::string id{}, address{};
  std::string run_id{};  // of this process, and of no other, at the same address or elsewhere; or empty
};

class Greeter {
 public:
  // All of them outlive it.
  Greeter(net::Transport& transport, net::ReadBuffer& buffer, ReplyReader& reader)
      : transport_{transport}, buffer_{buffer}, reader_{reader} {}

  // Why the connection cannot be used, or empty. What the server said is in greeting. takes_replica: as it
  // is, to end a connection there.
  [[nodiscard]] net::Task<std::string> greet(const redis::Address& address, bool takes_replica,
                                             Greeting& greeting);

 private:
  // One whole reply; nothing at the end.
  [[nodiscard]] net::Task<std::optional<std::string>> receive_one();

  net::Transport& transport_;
  net::ReadBuffer& buffer_;
  ReplyReader& reader_;
};

}  // namespace fenceguard::resp
