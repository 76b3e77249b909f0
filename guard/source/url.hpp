#pragma once

// Url: where a token source or a storage is, such as sqlite:fenceguard.db, redis://cache/0?fair=1 or
// postgres://user:password@host/db. Parsed once; nothing ever prints the password.

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fenceguard {

struct Url {
  std::string scheme;  // lower case
  std::string user;
  std::string password;
  std::string authority;  // hosts and ports as written, without user and password: 'h1:2181,h2:2181'
  std::string path;       // all of the rest for a URL without '//': sqlite:PATH
  std::map<std::string, std::string> parameters;

  // Throws InvalidInput with what is wrong; the message never holds the URL's password.
  [[nodiscard]] static Url parse(std::string_view text);

  // For messages and logs: the URL with '***' for the password.
  [[nodiscard]] std::string redacted() const;

  // Throws InvalidInput if there is a parameter that is not in known, and lists the known ones.
  void require_known_parameters(std::span<const std::string_view> known) const;
  void require_known_parameters(std::initializer_list<std::string_view> known) const {
    require_known_parameters(std::span{known.begin(), known.size()});
  }

  // A parameter's value; nothing if it is not given.
  [[nodiscard]] std::optional<std::string> parameter(std::string_view name) const;
  // The same as what it stands for, otherwise where it is not given. They throw InvalidInput with what it may
  // be.
  [[nodiscard]] std::chrono::milliseconds duration(std::string_view name, std::chrono::milliseconds otherwise,
                                                   std::chrono::milliseconds min,
                                                   std::chrono::milliseconds max) const;
  [[nodiscard]] bool flag(std::string_view name, bool otherwise) const;
  [[nodiscard]] std::int64_t number(std::string_view name, std::int64_t otherwise, std::int64_t max) const;

  // The hosts of the authority, each with its port if it has one, in their order. One, and empty, where there
  // is none.
  [[nodiscard]] std::vector<std::string_view> hosts() const;

  // 'a redis: URL', for messages.
  [[nodiscard]] std::string kind() const;
};

}  // namespace fenceguard
