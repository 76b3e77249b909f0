#pragma once

// AccessTokens: which clients may call the control side. A file holds one bearer token a line, with its role:
// 'lease TOKEN' or 'admin TOKEN'; '#' starts a comment. Comparison takes the same time wherever a token
// differs.
//
// Thread safety: all calls may be made from any thread.

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "guard/support/private_file.hpp"

namespace fenceguard {

// What a caller may do; each includes the ones before it.
enum class Role {
  open,   // probes and metrics: every client
  lease,  // take, renew, release and look at leases; look at and advance fences
  admin,  // everything
};

class AccessTokens {
 public:
  static constexpr std::size_t token_bytes_min = 16;

  // No tokens: every client that reaches the control side is admin.
  AccessTokens() = default;
  // Reads path. Throws InvalidInput with a sentence if it cannot be read, is malformed, holds no token, or
  // can be read by others than its owner.
  explicit AccessTokens(std::string path);

  // Reads the file again; on InvalidInput the old tokens stay. False: there is none.
  bool reload();

  // The role of what an Authorization field says; nothing if no such token is known.
  [[nodiscard]] std::optional<Role> role_of(std::optional<std::string_view> authorization) const;

 private:
  struct Entry {
    Role role;
    std::string token;
  };
  static std::vector<Entry> load(const std::string& path, Reading reading);

  std::string path_;
  mutable std::mutex mutex_;
  std::shared_ptr<const std::vector<Entry>> entries_;
};

}  // namespace fenceguard
