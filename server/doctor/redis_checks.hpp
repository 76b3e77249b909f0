#pragma once

// The doctor's single checks of one server. Each answers findings, and throws Unavailable only where the
// server is gone.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "adapters/redis/keys.hpp"
#include "adapters/redis/wire/connection.hpp"
#include "server/doctor/doctor.hpp"

namespace fenceguard::redis {

// What the server is used for.
enum class Use {
  source,
  storage,
  quorum_node,
  unsafe_quorum_node,  // whose user said ?unsafe_persistence=1
};
[[nodiscard]] inline bool is_of_quorum(Use use) noexcept {
  return use == Use::quorum_node || use == Use::unsafe_quorum_node;
}

// A server, and what it says of itself.
class ProbedServer {
 public:
  // Throws Unavailable.
  ProbedServer(const Address& address, Use use);

  [[nodiscard]] Use use() const noexcept { return use_; }
  [[nodiscard]] bool is_cluster() const noexcept { return connection_.server().is_cluster; }
  [[nodiscard]] bool is_replica() const noexcept { return connection_.server().is_replica; }
  [[nodiscard]] const std::string& version() const noexcept { return connection_.server().version; }
  [[nodiscard]] const Keys& keys() const noexcept { return keys_; }

  // A line of INFO; nothing where it is not there or INFO is refused.
  [[nodiscard]] std::optional<std::string> info(const std::string& name) const;
  // A line of the configuration; nothing where CONFIG is refused. unseen() then tells which, and refusal()
  // the server's words.
  [[nodiscard]] std::optional<std::string> setting(const std::string& name);
  [[nodiscard]] const std::vector<std::string>& unseen() const noexcept { return unseen_; }
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }

  [[nodiscard]] Reply call(const std::vector<std::string>& words);
  // Whether it lets a client in that says no password, as its default user; nothing where that could not be
  // tried.
  [[nodiscard]] std::optional<bool> lets_in_without_password() const;

 private:
  const Address address_;
  Connection connection_;
  Keys keys_;
  Use use_;
  std::map<std::string, std::string> info_;
  std::vector<std::string> unseen_;
  std::string refusal_;
};

// All checks, in their order.
[[nodiscard]] Findings examine(ProbedServer& server);

// The masters of the cluster that the server is a node of.
[[nodiscard]] std::vector<Endpoint> masters(ProbedServer& server);

}  // namespace fenceguard::redis
