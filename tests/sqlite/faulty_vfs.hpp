#pragma once

// FaultyVfs: a layer under SQLite that lets its writes fail, and forgets at a crash what was not synced. It
// becomes the default VFS of this process for as long as the object lives, above "unix", and watches files
// under one folder.
//
// A write, truncation or sync that was told to fail does nothing. As with Linux, what a failed sync did not
// bring to the disk is never brought there by a later one, unless it is written again, although it can still
// be read.
//
// Thread-safe. One at a time; no connection may be open when it is made or goes.

#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace fenceguard::test {

class FaultyVfs {
 public:
  enum class Operation { write, truncate, sync };

  explicit FaultyVfs(std::string folder);
  ~FaultyVfs();
  FaultyVfs(const FaultyVfs&) = delete;
  FaultyVfs& operator=(const FaultyVfs&) = delete;

  // Lets the n-th operation of the given kinds from now on fail with code, and times - 1 after it. Counts
  // from 1.
  void fail_at(int n, int code, std::set<Operation> kinds, int times = 1);
  // No faults any more.
  void heal();
  // How many operations have failed since fail_at().
  [[nodiscard]] int failures() const;
  // How many syncs have failed since fail_at().
  [[nodiscard]] int failed_syncs() const;

  // The machine loses its power: everything fails from now on, until restart().
  void crash();
  // Every file is what was synced of it. REQUIRES: crash() was called, and no connection is open.
  void restart();

 private:
  friend struct FaultyFile;

  // An operation that was not synced yet; a truncation has no bytes.
  struct Change {
    std::int64_t offset = 0;
    std::string bytes;
    bool is_truncation = false;
  };
  struct Disk {
    std::string synced;
    std::vector<Change> pending;
  };

  // SQLITE_OK, or what the operation is to fail with.
  [[nodiscard]] int judge(Operation operation);
  static void apply(std::string& content, const Change& change);

  const std::string folder_;
  sqlite3_vfs* const base_;
  sqlite3_vfs vfs_;

  mutable std::mutex mutex_;
  std::map<std::string, Disk> disks_;
  std::set<Operation> kinds_;
  int until_failure_ = 0;  // 0: none is planned
  int times_ = 0;
  int code_ = 0;
  int failures_ = 0;
  int failed_syncs_ = 0;
  bool is_crashed_ = false;
};

}  // namespace fenceguard::test
