#include "bench/slow_disk.hpp"

#include <sqlite3.h>
#include <sys/prctl.h>
#include <time.h>

#include <atomic>
#include <map>
#include <mutex>

namespace fenceguard::bench {
namespace {

std::atomic<std::int64_t> sync_us{0};
sqlite3_vfs* real_vfs = nullptr;

// The methods of one kind of file: the real ones, and the same with our sync.
struct Methods {
  const sqlite3_io_methods* real = nullptr;
  sqlite3_io_methods patched{};
};

std::mutex methods_mutex;
std::map<const sqlite3_io_methods*, Methods> methods_by_real;
std::map<const sqlite3_io_methods*, const sqlite3_io_methods*> real_by_patched;

int sync_slowly(sqlite3_file* file, int flags) {
  const std::int64_t us = sync_us.load(std::memory_order_relaxed);
  if (us > 0) {
    thread_local const bool is_exact = prctl(PR_SET_TIMERSLACK, 1000UL) == 0;
    (void)is_exact;
    const timespec pause{us / 1'000'000, (us % 1'000'000) * 1000};
    nanosleep(&pause, nullptr);
    return SQLITE_OK;
  }
  const sqlite3_io_methods* real = nullptr;
  {
    const std::scoped_lock lock{methods_mutex};
    real = real_by_patched.at(file->pMethods);
  }
  return real->xSync(file, flags);
}

int open_patched(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* flags_out) {
  const int code = real_vfs->xOpen(real_vfs, name, file, flags, flags_out);
  if (code != SQLITE_OK || file->pMethods == nullptr) return code;
  const std::scoped_lock lock{methods_mutex};
  Methods& methods = methods_by_real[file->pMethods];
  if (methods.real == nullptr) {
    methods.real = file->pMethods;
    methods.patched = *file->pMethods;
    methods.patched.xSync = sync_slowly;
    real_by_patched[&methods.patched] = methods.real;
  }
  file->pMethods = &methods.patched;
  return code;
}

}  // namespace

void install_slow_disk() {
  real_vfs = sqlite3_vfs_find(nullptr);
  static sqlite3_vfs patched = *real_vfs;
  patched.zName = "slow-disk";
  patched.pNext = nullptr;
  patched.xOpen = open_patched;
  sqlite3_vfs_register(&patched, 1);
}

void set_sync_time(std::chrono::microseconds time) {
  sync_us.store(time.count());
}

}  // namespace fenceguard::bench
