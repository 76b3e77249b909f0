#pragma once

// Connections of old holders, for a take-over. Redis knows nothing of tokens, so that which connections are a
// holder's is told by what they are called (CLIENT SETNAME), by their user, or by their address.
//
// Thread-safe: every call makes a connection of its own.

#include <string>
#include <string_view>

#include "guard/resource.hpp"
#include "guard/source/url.hpp"
#include "guard/token.hpp"

namespace fenceguard::redis {

class ClientFilter {
 public:
  // 'name=PATTERN' (%t is a token, up to the old one; %r the resource, percent-encoded), 'user=NAME', or
  // 'addr=IP' or 'addr=IP:PORT'. Throws InvalidInput.
  [[nodiscard]] static ClientFilter parse(std::string_view text);

  // Whether line, of CLIENT LIST, is of a connection that is to end.
  [[nodiscard]] bool matches(std::string_view line, const Resource& resource, Token old_token) const;
  // The user whose connections end; empty: they are told by something else.
  [[nodiscard]] std::string_view user() const noexcept;

 private:
  enum class By { name, user, address };
  ClientFilter(By by, std::string_view value) : by_{by}, value_{value} {}
  [[nodiscard]] bool matches_name(std::string_view name, const Resource& resource, Token old_token) const;

  By by_;
  std::string value_;
};

// Ends them (CLIENT KILL ID) at the server, or under Redis Cluster at that of the resource; answers how many.
// They are over when it returns: Redis runs none of their commands any more. Throws Unavailable or
// OutcomeUnknown.
int kill_clients(const Url& url, const ClientFilter& filter, const Resource& resource, Token old_token);

}  // namespace fenceguard::redis
