#pragma once

// Layout: which nodes make up a lock. An entry is an ephemeral sequential child of the lock's node; the
// one with the lowest sequence holds the lock, every other one waits for the one before it (the ZooKeeper
// recipe 'Locks'). Named like this, kazoo's and Curator's entries and ours exclude each other:
//
//   kazoo     GUID + '__lock__' + sequence            GUID: 32 hexadecimal digits
//   curator   '_c_' + GUID + '-lock-' + sequence      GUID: with dashes
//
// Both are read whatever is written. One name cannot serve both libraries: kazoo looks for '__lock__', and
// Curator sorts by what follows the last 'lock-', with anything else sorted as a whole. Only the GUID tells,
// after a lost answer, whether a node was made.
//
// Values; the functions are thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "guard/resource.hpp"

namespace fenceguard::zookeeper {

enum class Layout { kazoo, curator };

// A node's name up to its sequence, for an entry of this GUID (32 hexadecimal digits).
[[nodiscard]] std::string entry_name(Layout layout, const std::string& guid);

// The sequence of an entry, or nothing for a node that is none. ZooKeeper counts with 32 bits and a sign;
// what it counted is a serial number that comes round (RFC 1982).
[[nodiscard]] std::optional<std::uint32_t> sequence_of(std::string_view name);
[[nodiscard]] constexpr bool is_before(std::uint32_t a, std::uint32_t b) noexcept {
  return static_cast<std::int32_t>(a - b) < 0;
}

// The entries among the children of a lock's node, first come first.
[[nodiscard]] std::vector<std::string> entries_of(const std::vector<std::string>& children);

// One segment of a resource as a node's name: what ZooKeeper refuses in a path, and '%', is percent-encoded,
// and so is the last digit of what would be read as an entry.
[[nodiscard]] std::string segment_name(std::string_view segment);

// Where locks are.
class LockPath {
 public:
  // Below root, or as pattern (?lock_path=) says: an absolute path with one %s, which stands for the
  // resource; empty: none. Throws InvalidInput for what is no such pattern.
  LockPath(const std::string& root, const std::string& pattern);

  // The node of a lock: a segment of the resource is a node's name.
  [[nodiscard]] std::string of(const Resource& resource) const;
  // Whose lock a node is; nothing: no resource's.
  [[nodiscard]] std::optional<Resource> resource_of(const std::string& path) const;
  // Whether below a node there may be locks of resources that start with prefix.
  [[nodiscard]] bool may_be_above(const std::string& path, const std::string& prefix) const;

  // All locks are below this node.
  [[nodiscard]] const std::string& top() const noexcept { return top_; }

 private:
  std::string top_;
  std::string before_;
  std::string after_;
};

}  // namespace fenceguard::zookeeper
