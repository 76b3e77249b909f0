#pragma once

// FaultyVfs: a layer under SQLite that lets its writes fail, and forgets at a crash some of what was not
// synced. It becomes the default VFS of this process for as long as the object lives, above "unix", and
// watches files under one folder.
//
// A write, truncation or sync that was told to fail does nothing. What was not synced when the power goes is
// there or not, sector by sector (512 bytes), as the seed has it; a sector holds what it held at some moment
// since the last sync. Truncations keep their place among the writes. A file that was deleted, or deleted and
// made anew, may be the old one again until its folder was synced.
//
// As with Linux, what a failed sync did not bring to the disk is never brought there by a later one, unless
// it is written again, although it can still be read.
//
// Thread-safe. One at a time; no connection may be open when it is made or goes.

#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace fenceguard::test {

class FaultyVfs {
 public:
  enum class Operation { write, truncate, sync };

  explicit FaultyVfs(std::string folder, unsigned seed = 1);
  ~FaultyVfs();
  FaultyVfs(const FaultyVfs&) = delete;
  FaultyVfs& operator=(const FaultyVfs&) = delete;

  // Lets the n-th operation of the given kinds from now on fail with code, and times - 1 after it. Counts
  // from 1. Replaces what was told before.
  void fail_at(int n, int code, std::set<Operation> kinds, int times = 1);
  // The same, besides what was told before.
  void also_fail_at(int n, int code, std::set<Operation> kinds, int times = 1);
  // No faults any more.
  void heal();
  // How many operations have failed since fail_at(), of all kinds or of one.
  [[nodiscard]] int failures() const;
  [[nodiscard]] int failures(Operation operation) const;

  // From now on every connection has synchronous=NORMAL, whatever it asks for.
  void lower_synchronous();

  // The machine loses its power: everything fails from now on, until restart().
  void crash();
  // The same at the n-th operation from now on, counted from 1.
  void crash_at(int n);
  [[nodiscard]] bool is_crashed() const;
  // Every file is what had come to the disk. REQUIRES: crash() was called, and no connection is open.
  void restart();

 private:
  friend struct FaultyFile;

  // What was not synced yet: a sector with its whole content, or a truncation, which has no bytes.
  struct Change {
    std::int64_t offset = 0;
    std::string bytes;
    bool is_truncation = false;
  };
  struct Disk {
    std::string synced;
    std::vector<Change> pending;
  };
  struct Plan {
    int until_failure = 0;
    int code = 0;
    std::set<Operation> kinds;
    int times = 0;
  };

  // SQLITE_OK, or what the operation is to fail with.
  [[nodiscard]] int judge(Operation operation);
  static void apply(std::string& content, const Change& change);
  // Brings some of what is pending to the disk. What is left is lost, but for a truncation, which comes
  // later.
  void bring_some(Disk& disk);
  // True this often in a hundred times.
  [[nodiscard]] bool happens(unsigned percent) { return random_() % 100 < percent; }

  const std::string folder_;
  sqlite3_vfs* const base_;
  sqlite3_vfs vfs_;

  mutable std::mutex mutex_;
  std::mt19937 random_;
  std::map<std::string, Disk> disks_;
  std::map<std::string, Disk> deleted_;  // whose folder was not synced since
  std::vector<Plan> plans_;
  std::map<Operation, int> failures_;
  int until_crash_ = 0;  // 0: none is told
  bool is_crashed_ = false;
  bool is_lowered_ = false;
};

}  // namespace fenceguard::test
