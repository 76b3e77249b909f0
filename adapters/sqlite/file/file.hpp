#pragma once

// The file of a storage or a token source before it is opened: made whole or not at all, refused if it is
// damaged, locked by its guard.
//
// Thread safety: the calls may be made from any thread.

#include <chrono>
#include <string>

#include "adapters/sqlite/file/inode_lock.hpp"
#include "guard/source/url.hpp"
#include "guard/support/descriptor.hpp"

namespace fenceguard::sqlite {

// The path of an sqlite: URL. Throws InvalidInput.
[[nodiscard]] std::string path_of(const Url& url);

enum class Missing { create, refuse };

// Throws Unavailable if there is no such file, with the whole path that was looked at.
void require_present(const std::string& path);

// Makes sure that the file is there with all tables in this build's version: creates it (under another name
// first, so that a crash leaves no half-made file), upgrades it unless a guard is running, and looks for
// damage. Throws Unavailable with a sentence that says what to do: an empty or truncated file, not a
// database, damaged, newer than this build, not writable.
//
// lock_wait: how long an upgrade waits for a running guard to end.
void prepare_file(const std::string& path, Missing missing,
                  std::chrono::milliseconds lock_wait = std::chrono::milliseconds{1'000});

// Holds the file for this process as its only guard, for as long as the object lives: never by a time to
// live, so a paused guard keeps it. Other processes may still read the file and use its lease table.
//
// The lock is on a file of its own, PATH-guard, which should stay, and on the database itself as well
// (InodeLock): so there is one guard also where PATH-guard was deleted, or the database has two names.
//
// A service that keeps fences in a file of its own shares both locks for the length of a transaction, so that
// no guard, which would not see what it does, comes or is there meanwhile.
class GuardLock {
 public:
  enum class Kind { guard, transaction };
  // Throws Unavailable if another guard or transaction holds it: for a guard after it has waited for so long,
  // which is also what lets transactions end, for a transaction at once.
  explicit GuardLock(const std::string& path, Kind kind = Kind::guard,
                     std::chrono::milliseconds wait = std::chrono::milliseconds{1'000});
  GuardLock(const GuardLock&) = delete;
  GuardLock& operator=(const GuardLock&) = delete;

  // True if a guard holds the file.
  [[nodiscard]] static bool is_taken(const std::string& path);

 private:
  [[nodiscard]] bool take(const std::string& path, Kind kind);

  const Descriptor descriptor_;
  InodeLock inode_;
};

}  // namespace fenceguard::sqlite
