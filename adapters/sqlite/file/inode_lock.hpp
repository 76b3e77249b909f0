#pragma once

// InodeLock: a process holds a file alone, or several share it, whatever name each of them knows it by:
// flock(2) on its own inode. On a local file system Linux keeps these locks apart from those of fcntl(2),
// which SQLite takes on the same file.
//
// Closing any descriptor of a file drops all fcntl locks that this process has on it. So what is opened here
// is not closed while the file has a name: the next lock of the file uses it again. A process keeps one
// descriptor for each file that it ever locked, which also keeps its file system from being unmounted.
//
// Thread safety: objects may be used from any thread, each from one at a time.

#include <string>

namespace fenceguard::sqlite {

// True for a file system of another machine or of a process, on whose locks no process can rely (statfs(2)).
[[nodiscard]] bool is_remote(const std::string& path);

class InodeLock {
 public:
  enum class Mode { exclusive, shared };

  InodeLock() = default;
  ~InodeLock();
  InodeLock(const InodeLock&) = delete;
  InodeLock& operator=(const InodeLock&) = delete;

  // Does not wait. False: another lock is in the way, in this process or another one. On a remote file
  // system, where the two kinds of locks may meet, it takes nothing and says true. Throws Unavailable.
  // REQUIRES: not held.
  [[nodiscard]] bool try_lock(const std::string& path, Mode mode);

 private:
  int descriptor_ = -1;  // of a file that is held
};

}  // namespace fenceguard::sqlite
