#pragma once

// AccountClient: who takes the lock and adds to the account in 'session-expiry', with sessions of its own.
// One kind keeps to the lock recipe alone, the other takes its lock from the token source and carries its
// claim with every read and write. Both repeat a write whose answer was lost, in a new session if the old one
// has expired, as the retries of kazoo and of Curator do.
//
// Not thread-safe.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "adapters/zookeeper/demo/server.hpp"
#include "guard/judge.hpp"

namespace fenceguard::zookeeper::demos {

inline constexpr const char* account = "accounts/42";
inline constexpr const char* balance_path = "/accounts/42/balance";

// The account, from the point of view of nobody.
void open_account(const Server& server, std::int64_t balance);
[[nodiscard]] std::int64_t balance_of(const Server& server);
// As 'fenceguard fence init' does.
void initialise_fences(const Server& server);

// '150, should be 180: an update is LOST', or '180: nothing is lost'.
[[nodiscard]] std::string balance_sentence(std::int64_t balance, std::int64_t expected);

// How a write ended.
struct Written {
  Verdict verdict = Verdict::admitted;
  std::int64_t before = 0;   // admitted without a claim: what stood there
  std::int64_t highest = 0;  // refused: by this token
};

class AccountClient {
 public:
  virtual ~AccountClient() = default;
  // Asks for the lock. Its token, or the name of its node, once it has it; nothing while another holds it.
  [[nodiscard]] virtual std::optional<std::string> take() = 0;
  // False if it was lost before.
  virtual bool give_back() = 0;
  // The balance; nothing if the claim was refused.
  [[nodiscard]] virtual std::optional<std::int64_t> read() = 0;
  virtual Written write(std::int64_t balance) = 0;
  // True once it knows that the session of its lock is over.
  [[nodiscard]] virtual bool knows_of_loss() = 0;
};

// who: 'A'. session_timeout: of the session with its lock.
[[nodiscard]] std::unique_ptr<AccountClient> plain_client(const std::string& url, const std::string& who,
                                                          std::chrono::milliseconds session_timeout);
[[nodiscard]] std::unique_ptr<AccountClient> fenced_client(const std::string& url, const std::string& who,
                                                           std::chrono::milliseconds session_timeout);

}  // namespace fenceguard::zookeeper::demos
