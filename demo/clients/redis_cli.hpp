#pragma once

// RedisCli: redis-cli as the client of an account in Redis. Under a claim it is told 'FENCE' before it reads.
//
// Not thread-safe.

#include <string>
#include <vector>

#include "demo/clients/account_cli.hpp"

namespace fenceguard::demo {

struct RedisCliOptions {
  std::vector<std::string> arguments{};  // where it connects to
  std::string password{};                // that it says there
  std::string key{};                     // the account
  std::string resource{};                // which the key belongs to
};

class RedisCli : public AccountCli {
 public:
  // Throws Unavailable where there is no redis-cli. REQUIRES: the harness outlives it.
  RedisCli(Harness& harness, RedisCliOptions options);

 private:
  enum class Asked { balance, balance_under_claim, write };

  void ask(const boost::json::object& request) override;
  [[nodiscard]] boost::json::object answer() override;
  // One answer of redis-cli; of an error, its line and the empty one behind it.
  [[nodiscard]] std::string receive_answer(std::string_view expected);

  RedisCliOptions options_;
  Asked asked_ = Asked::balance;
};

}  // namespace fenceguard::demo
