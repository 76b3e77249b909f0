#pragma once

// Connections of old holders, for a take-over. Redis knows nothing of tokens, so that which connections are a
// holder's is told by what they are called (CLIENT SETNAME), by their user, or by their address.
//
// Thread-safe: every call makes a connection of its own.

#include <chrono>
#include <string>
#include <string_view>

#include "guard/resource.hpp"
#include "guard/source/url.hpp"
#include "guard/token.hpp"

namespace fenceguard::redis {

class ClientFilter {
 public:
  // 'name=PATTERN' (%t is a token, up to the old one; %r the resource, percent-encoded), the same with
  // '&user=NAME' behind it (of that user's alone), 'user=NAME', or 'addr=IP' or 'addr=IP:PORT'. Throws
  // InvalidInput.
  [[nodiscard]] static ClientFilter parse(std::string_view text);

  // Whether line, of CLIENT LIST, is of a connection that is to end.
  [[nodiscard]] bool matches(std::string_view line, const Resource& resource, Token old_token) const;
  // Whether it may be of one although it does not match: by name, where it has none of that form, as a client
  // may call itself anything.
  [[nodiscard]] bool may_match(std::string_view line) const;
  // The user whose connections are looked at; empty: all.
  [[nodiscard]] const std::string& user() const noexcept { return user_; }

 private:
  enum class By { name, user, address };
  ClientFilter(By by, std::string_view value, std::string_view user) : by_{by}, value_{value}, user_{user} {}
  [[nodiscard]] bool is_of_user(std::string_view line) const;
  // resource: null is any.
  [[nodiscard]] bool matches_name(std::string_view name, const Resource* resource, Token old_token) const;

  By by_;
  std::string value_;
  std::string user_;
};

// Ends them (CLIENT KILL ID) at the server, or under Redis Cluster at that of the resource; answers how many.
// They are over when it returns, and no other has come: Redis runs none of their commands any more. Throws
// Unavailable, also where connections are left that may be of an old holder; or OutcomeUnknown.
int kill_clients(const Url& url, const ClientFilter& filter, const Resource& resource, Token old_token,
                 std::chrono::milliseconds limit);

}  // namespace fenceguard::redis
