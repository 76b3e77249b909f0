#include "tests/sqlite/faulty_vfs.hpp"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

namespace fenceguard::test {
namespace {

FaultyVfs* the_vfs = nullptr;

std::string content_of(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

}  // namespace

// SQLite allocates szOsFile bytes: this, and behind it the file of the layer below.
struct FaultyFile {
  sqlite3_file base;
  std::string* path;  // null if the file is not watched

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
    const std::string text{static_cast<const char*>(bytes), static_cast<std::size_t>(count)};
    the_vfs->disks_[*of(file).path].pending.push_back({offset, text, false});
    return go_on();
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
    const auto pending = std::exchange(disk.pending, {});
    if (const int code = the_vfs->judge(FaultyVfs::Operation::sync)) return code;
    for (const auto& change : pending) FaultyVfs::apply(disk.synced, change);
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
    const std::scoped_lock lock{the_vfs->mutex_};
    // What was there before this layer saw it is taken as synced.
    if (!the_vfs->disks_.contains(path)) the_vfs->disks_[path].synced = content_of(path);
    return code;
  }

  static int remove(sqlite3_vfs*, const char* path, int sync_folder) {
    {
      const std::scoped_lock lock{the_vfs->mutex_};
      if (the_vfs->is_crashed_) return SQLITE_IOERR_DELETE;
      the_vfs->disks_.erase(path);
    }
    return the_vfs->base_->xDelete(the_vfs->base_, path, sync_folder);
  }
};

FaultyVfs::FaultyVfs(std::string folder)
    : folder_{std::move(folder)}, base_{sqlite3_vfs_find("unix")}, vfs_{*base_} {
  the_vfs = this;
  vfs_.zName = "faulty";
  vfs_.szOsFile = static_cast<int>(sizeof(FaultyFile)) + base_->szOsFile;
  vfs_.xOpen = FaultyFile::open;
  vfs_.xDelete = FaultyFile::remove;
  sqlite3_vfs_register(&vfs_, 1);
}

FaultyVfs::~FaultyVfs() {
  sqlite3_vfs_unregister(&vfs_);
  sqlite3_vfs_register(base_, 1);
  the_vfs = nullptr;
}

void FaultyVfs::fail_at(int n, int code, std::set<Operation> kinds, int times) {
  const std::scoped_lock lock{mutex_};
  until_failure_ = n;
  times_ = times;
  code_ = code;
  kinds_ = std::move(kinds);
  failures_ = 0;
  failed_syncs_ = 0;
}

void FaultyVfs::heal() {
  const std::scoped_lock lock{mutex_};
  until_failure_ = 0;
}

int FaultyVfs::failures() const {
  const std::scoped_lock lock{mutex_};
  return failures_;
}

int FaultyVfs::failed_syncs() const {
  const std::scoped_lock lock{mutex_};
  return failed_syncs_;
}

void FaultyVfs::crash() {
  const std::scoped_lock lock{mutex_};
  is_crashed_ = true;
}

void FaultyVfs::restart() {
  const std::scoped_lock lock{mutex_};
  is_crashed_ = false;
  until_failure_ = 0;
  for (auto& [path, disk] : disks_) {
    disk.pending.clear();
    if (access(path.c_str(), F_OK) != 0) continue;
    std::ofstream{path, std::ios::binary | std::ios::trunc} << disk.synced;
    unlink((path + "-shm").c_str());
  }
}

int FaultyVfs::judge(Operation operation) {
  if (is_crashed_) return SQLITE_IOERR;
  if (until_failure_ == 0 || !kinds_.contains(operation)) return SQLITE_OK;
  if (until_failure_ > 1) {
    --until_failure_;
    return SQLITE_OK;
  }
  ++failures_;
  if (operation == Operation::sync) ++failed_syncs_;
  if (--times_ == 0) until_failure_ = 0;
  return code_;
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
