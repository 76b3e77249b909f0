#include "tests/sqlite/fault/faulty_vfs.hpp"

#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

namespace fenceguard::test {
namespace {

constexpr std::int64_t sector_bytes = 512;

FaultyVfs* the_vfs = nullptr;

std::string content_of(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

// Called by SQLite for each new connection.
int begin_lowered(sqlite3* connection, const char**, const sqlite3_api_routines*) {
  return sqlite3_exec(connection, "PRAGMA synchronous = NORMAL", nullptr, nullptr, nullptr);
}

}  // namespace

// SQLite allocates szOsFile bytes: this, and behind it the file of the layer below.
struct FaultyFile {
  sqlite3_file base;
  std::string* path;  // null if the file is not watched
  bool syncs_folder;  // with its first sync, as SQLite does for new journals and logs

  static FaultyFile& of(sqlite3_file* file) { return *reinterpret_cast<FaultyFile*>(file); }
  static sqlite3_file* under(sqlite3_file* file) {
    return reinterpret_cast<sqlite3_file*>(reinterpret_cast<char*>(file) + sizeof(FaultyFile));
  }
  static const sqlite3_io_methods* methods(sqlite3_file* file) { return under(file)->pMethods; }

  static int close(sqlite3_file* file) {
    delete of(file).path;
    return methods(file)->xClose(under(file));
  }
  static int read(sqlite3_file* file, void* bytes, int count, sqlite3_int64 offset) {
    return methods(file)->xRead(under(file), bytes, count, offset);
  }

  static int write(sqlite3_file* file, const void* bytes, int count, sqlite3_int64 offset) {
    const auto go_on = [&] { return methods(file)->xWrite(under(file), bytes, count, offset); };
    if (of(file).path == nullptr) return go_on();
    const std::scoped_lock lock{the_vfs->mutex_};
    if (const int code = the_vfs->judge(FaultyVfs::Operation::write)) return code;
    const int code = go_on();
    if (code == SQLITE_OK) note_sectors(file, offset, offset + count);
    return code;
  }

  // A sector goes to the disk as a whole, with what was written to it before.
  static void note_sectors(sqlite3_file* file, sqlite3_int64 begin, sqlite3_int64 end) {
    sqlite3_int64 file_end = 0;
    methods(file)->xFileSize(under(file), &file_end);
    begin -= begin % sector_bytes;
    end = std::min(end + (sector_bytes - 1) - (end + sector_bytes - 1) % sector_bytes, file_end);
    std::string text(static_cast<std::size_t>(end - begin), '\0');
    methods(file)->xRead(under(file), text.data(), static_cast<int>(text.size()), begin);
    auto& pending = the_vfs->disks_[*of(file).path].pending;
    for (auto at = begin; at < end; at += sector_bytes)
      pending.push_back({at, text.substr(static_cast<std::size_t>(at - begin), sector_bytes), false});
  }

  static int truncate(sqlite3_file* file, sqlite3_int64 size) {
    const auto go_on = [&] { return methods(file)->xTruncate(under(file), size); };
    if (of(file).path == nullptr) return go_on();
    const std::scoped_lock lock{the_vfs->mutex_};
    if (const int code = the_vfs->judge(FaultyVfs::Operation::truncate)) return code;
    the_vfs->disks_[*of(file).path].pending.push_back({size, "", true});
    return go_on();
  }

  static int sync(sqlite3_file* file, int flags) {
    const auto go_on = [&] { return methods(file)->xSync(under(file), flags); };
    if (of(file).path == nullptr) return go_on();
    const std::scoped_lock lock{the_vfs->mutex_};
    auto& disk = the_vfs->disks_[*of(file).path];
    if (const int code = the_vfs->judge(FaultyVfs::Operation::sync)) {
      if (!the_vfs->is_crashed_) the_vfs->bring_some(disk);
      return code;
    }
    for (const auto& change : std::exchange(disk.pending, {})) FaultyVfs::apply(disk.synced, change);
    if (std::exchange(of(file).syncs_folder, false)) the_vfs->deleted_.clear();
    return go_on();
  }

  static int size(sqlite3_file* file, sqlite3_int64* size) {
    return methods(file)->xFileSize(under(file), size);
  }
  static int lock(sqlite3_file* file, int level) { return methods(file)->xLock(under(file), level); }
  static int unlock(sqlite3_file* file, int level) { return methods(file)->xUnlock(under(file), level); }
  static int is_reserved(sqlite3_file* file, int* result) {
    return methods(file)->xCheckReservedLock(under(file), result);
  }
  static int control(sqlite3_file* file, int operation, void* argument) {
    if (operation == SQLITE_FCNTL_PRAGMA && of(file).path != nullptr && the_vfs->is_lowered_) {
      const char* const* words = static_cast<char**>(argument);
      const bool raises = words[2] != nullptr && strcasecmp(words[2], "NORMAL") != 0;
      if (raises && strcasecmp(words[1], "synchronous") == 0) return SQLITE_OK;  // and does nothing
    }
    return methods(file)->xFileControl(under(file), operation, argument);
  }
  static int sector_size(sqlite3_file* file) { return methods(file)->xSectorSize(under(file)); }
  static int traits(sqlite3_file* file) { return methods(file)->xDeviceCharacteristics(under(file)); }
  static int shm_map(sqlite3_file* file, int page, int size, int extend, void volatile** result) {
    return methods(file)->xShmMap(under(file), page, size, extend, result);
  }
  static int shm_lock(sqlite3_file* file, int offset, int count, int flags) {
    return methods(file)->xShmLock(under(file), offset, count, flags);
  }
  static void shm_barrier(sqlite3_file* file) { methods(file)->xShmBarrier(under(file)); }
  static int shm_unmap(sqlite3_file* file, int remove) {
    return methods(file)->xShmUnmap(under(file), remove);
  }

  static int open(sqlite3_vfs*, const char* path, sqlite3_file* file, int flags, int* out_flags) {
    static const sqlite3_io_methods table{
        2,       close,       read,   write,   truncate, sync,        size,      lock,    unlock, is_reserved,
        control, sector_size, traits, shm_map, shm_lock, shm_barrier, shm_unmap, nullptr, nullptr};
    of(file).path = nullptr;
    file->pMethods = nullptr;
    const int code = the_vfs->base_->xOpen(the_vfs->base_, path, under(file), flags, out_flags);
    if (code != SQLITE_OK) return code;
    file->pMethods = &table;
    if (path == nullptr || std::strncmp(path, the_vfs->folder_.c_str(), the_vfs->folder_.size()) != 0)
      return code;
    of(file).path = new std::string{path};
    of(file).syncs_folder = (flags & SQLITE_OPEN_CREATE) != 0 && (flags & SQLITE_OPEN_MAIN_DB) == 0;
    const std::scoped_lock lock{the_vfs->mutex_};
    // What was there before this layer saw it is taken as synced.
    if (!the_vfs->disks_.contains(path)) the_vfs->disks_[path].synced = content_of(path);
    return code;
  }

  static int remove(sqlite3_vfs*, const char* path, int sync_folder) {
    {
      const std::scoped_lock lock{the_vfs->mutex_};
      if (the_vfs->is_crashed_) return SQLITE_IOERR_DELETE;
      auto disk = the_vfs->disks_.extract(path);
      the_vfs->deleted_.erase(path);
      if (!disk.empty() && sync_folder == 0) the_vfs->deleted_.insert(std::move(disk));
    }
    return the_vfs->base_->xDelete(the_vfs->base_, path, sync_folder);
  }
};

FaultyVfs::FaultyVfs(std::string folder, unsigned seed)
    : folder_{std::move(folder)}, base_{sqlite3_vfs_find("unix")}, vfs_{*base_}, random_{seed} {
  the_vfs = this;
  vfs_.zName = "faulty";
  vfs_.szOsFile = static_cast<int>(sizeof(FaultyFile)) + base_->szOsFile;
  vfs_.xOpen = FaultyFile::open;
  vfs_.xDelete = FaultyFile::remove;
  sqlite3_vfs_register(&vfs_, 1);
}

FaultyVfs::~FaultyVfs() {
  sqlite3_cancel_auto_extension(reinterpret_cast<void (*)()>(begin_lowered));
  sqlite3_vfs_unregister(&vfs_);
  sqlite3_vfs_register(base_, 1);
  the_vfs = nullptr;
}

void FaultyVfs::fail_at(int n, int code, std::set<Operation> kinds, int times) {
  const std::scoped_lock lock{mutex_};
  plans_ = {{n, code, std::move(kinds), times}};
  failures_.clear();
}

void FaultyVfs::also_fail_at(int n, int code, std::set<Operation> kinds, int times) {
  const std::scoped_lock lock{mutex_};
  plans_.push_back({n, code, std::move(kinds), times});
}

void FaultyVfs::heal() {
  const std::scoped_lock lock{mutex_};
  plans_.clear();
}

int FaultyVfs::failures() const {
  return failures(Operation::write) + failures(Operation::truncate) + failures(Operation::sync);
}

int FaultyVfs::failures(Operation operation) const {
  const std::scoped_lock lock{mutex_};
  const auto found = failures_.find(operation);
  return found == failures_.end() ? 0 : found->second;
}

void FaultyVfs::lower_synchronous() {
  sqlite3_auto_extension(reinterpret_cast<void (*)()>(begin_lowered));
  const std::scoped_lock lock{mutex_};
  is_lowered_ = true;
}

void FaultyVfs::crash() {
  const std::scoped_lock lock{mutex_};
  is_crashed_ = true;
}

void FaultyVfs::crash_at(int n) {
  const std::scoped_lock lock{mutex_};
  until_crash_ = n;
}

bool FaultyVfs::is_crashed() const {
  const std::scoped_lock lock{mutex_};
  return is_crashed_;
}

void FaultyVfs::restart() {
  const std::scoped_lock lock{mutex_};
  is_crashed_ = false;
  until_crash_ = 0;
  plans_.clear();
  for (auto& [path, disk] : deleted_) {
    if (!happens(50)) continue;
    std::ofstream{path, std::ios::binary};
    disks_[path] = std::move(disk);
  }
  deleted_.clear();
  for (auto& [path, disk] : disks_) {
    bring_some(disk);
    disk.pending.clear();
    if (access(path.c_str(), F_OK) != 0) continue;
    std::ofstream{path, std::ios::binary | std::ios::trunc} << disk.synced;
    unlink((path + "-shm").c_str());
  }
}

int FaultyVfs::judge(Operation operation) {
  if (until_crash_ > 0 && --until_crash_ == 0) is_crashed_ = true;
  if (is_crashed_) return SQLITE_IOERR;
  for (auto plan = plans_.begin(); plan != plans_.end(); ++plan) {
    if (!plan->kinds.contains(operation)) continue;
    if (plan->until_failure > 1) {
      --plan->until_failure;
      continue;
    }
    ++failures_[operation];
    const int code = plan->code;
    if (--plan->times == 0) plans_.erase(plan);
    return code;
  }
  return SQLITE_OK;
}

// All and nothing are as likely as anything between: a transaction of many sectors must have a chance.
void FaultyVfs::bring_some(Disk& disk) {
  constexpr std::array<unsigned, 4> chances_percent{0, 50, 90, 100};
  const unsigned chance_percent = chances_percent[random_() % chances_percent.size()];
  for (const auto& change : std::exchange(disk.pending, {})) {
    if (happens(chance_percent)) {
      apply(disk.synced, change);
    } else if (change.is_truncation) {
      disk.pending = {change};  // what was written after it is nowhere yet
      return;
    }
  }
}

void FaultyVfs::apply(std::string& content, const Change& change) {
  const auto offset = static_cast<std::size_t>(change.offset);
  if (change.is_truncation) {
    content.resize(offset);
    return;
  }
  if (content.size() < offset + change.bytes.size()) content.resize(offset + change.bytes.size());
  content.replace(offset, change.bytes.size(), change.bytes);
}

}  // namespace fenceguard::test
