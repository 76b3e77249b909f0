#pragma once

// LockName: under which keys a resource's lock is: our own, or those of a foreign 'etcdctl lock NAME'
// (?lock_key=). A queue entry's key is NAME, a slash, and the hexadecimal number of its lease.
//
// Values; thread-safe.

#include <optional>
#include <string>
#include <string_view>

#include "adapters/etcd/client.hpp"
#include "guard/resource.hpp"

namespace fenceguard::etcd {

class LockName {
 public:
  // prefix: the namespace. pattern: PREFIX%sSUFFIX, where %s stands for the resource; empty: our own name.
  // Throws InvalidInput for a pattern without exactly one %s.
  LockName(std::string prefix, const std::string& pattern);

  // What all keys of the lock start with: NAME and the slash. In our own names the resource's slashes and
  // percent signs are percent-encoded, so that the lock of 'a' does not see the keys of 'a/b'. A pattern
  // takes the resource as it is, so that there these two exclude each other, as they do for etcdctl. Throws
  // InvalidInput where the pattern makes a key of ours out of the resource.
  [[nodiscard]] std::string of(const Resource& resource) const;

  // The key of an entry.
  [[nodiscard]] std::string key_of(const Resource& resource, std::int64_t lease) const;

  // Whose lock an entry's key is of, as of() names it; nothing: no resource's.
  [[nodiscard]] std::optional<Resource> resource_of(std::string_view key) const;
  // What the keys of the locks of all resources that start with prefix are among.
  [[nodiscard]] Op all_of(const std::string& prefix) const;

  // To be put with every key of a lock that is not in our own names, so that lowest_live() finds the locks of
  // every pattern that the namespace is used with.
  [[nodiscard]] std::vector<Op> registration() const;
  // Where the registered patterns are, and one of them.
  [[nodiscard]] static Op registered(const std::string& prefix);
  [[nodiscard]] static LockName of_registration(const std::string& prefix, const KeyValue& registration);

  // Ranges that hold all keys of all locks, those in our own names always among them.
  [[nodiscard]] std::vector<Op> all() const;

 private:
  [[nodiscard]] std::string own() const { return prefix_ + "/lock/"; }

  std::string prefix_;
  bool is_shared_;
  std::string before_;
  std::string after_;
};

// The name of a lease in a key, as Go prints it with %x.
[[nodiscard]] std::string lease_in_key(std::int64_t lease);

}  // namespace fenceguard::etcd
