#pragma once

// The process of a demonstration's client: obeys requests on stdin, one line of JSON each, and answers each
// with a line of JSON on stdout. Its first line says where its lock and its account are. It looks at no clock
// before it writes and does not ask whether it still holds the lock, because no such answer would still be
// true at the moment of the write.
//
// Not thread-safe.

#include <boost/json/object.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "guard/claim.hpp"

namespace fenceguard::demo {

// An answer. Its members, where they apply: verdict, balance, highest, status; of a lock token and holder or
// node, highest, refusal, retry_after, released; began_us and ended_us.
using Reply = boost::json::object;

// A member of a request or of an answer; 0 and empty where there is none.
[[nodiscard]] std::int64_t number_at(const Reply& object, const char* name);
[[nodiscard]] std::string text_at(const Reply& object, const char* name);

class Lock {
 public:
  virtual ~Lock() = default;
  // With neither token nor node if the lock is held.
  virtual Reply take(const Reply& request) = 0;
  // claim: what the client was granted, if it was a token. False if it was lost before.
  virtual bool release(const std::optional<Claim>& claim, Reply& reply) = 0;
  // True once it has learned that the lock is lost.
  virtual bool is_lost() { return false; }
};

// Where the client reads and writes: under its claim where it has one.
class AccountAccess {
 public:
  virtual ~AccountAccess() = default;
  virtual Reply read(const std::optional<Claim>& claim) = 0;
  virtual Reply write(const std::optional<Claim>& claim, std::int64_t balance) = 0;
};

// The number in body. Throws Unavailable if there is none.
[[nodiscard]] std::int64_t balance_in(const std::optional<std::string>& body);

struct Tools {
  std::unique_ptr<Lock> lock;
  std::unique_ptr<AccountAccess> account;
};

// Serves until stdin ends, with the lock and the account that the first line names, or with those that make()
// returns for that line. A fault is the answer's member 'error', and ends it.
void run_client();
void run_client(const std::function<Tools(const Reply& options)>& make);

}  // namespace fenceguard::demo
