#include "adapters/sqlite/file/inode_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <system_error>
#include <vector>

#include "guard/error.hpp"

namespace fenceguard::sqlite {
namespace {

constexpr std::array<long, 6> remote_file_systems{
    0x6969 /* NFS */,      static_cast<long>(0xFF534D42) /* CIFS */,
    0x517B /* SMB */,      static_cast<long>(0xFE534D42) /* SMB2 */,
    0x65735546 /* FUSE */, 0x01021997 /* 9P */};

struct OpenFile {
  dev_t device;
  ino_t inode;
  int descriptor;
  // The locks of this process, which flock() would grant again; one that is exclusive counts as -1.
  int holders;
};

// All that this process ever locked.
struct OpenFiles {
  std::mutex mutex;
  std::vector<OpenFile> all;
};

OpenFiles& open_files() {
  static auto* const files = new OpenFiles;  // lives longer than every guard
  return *files;
}

[[noreturn]] void fail(const std::string& path) {
  throw Unavailable(fmt::format("cannot lock {} ({}): check owner, mode and mount", path,
                                std::generic_category().message(errno)));
}

// No process can open these any more, so that no lock on them protects anything.
void close_deleted(std::vector<OpenFile>& files) {
  std::erase_if(files, [](const OpenFile& file) {
    struct stat found {};
    if (file.holders != 0 || fstat(file.descriptor, &found) != 0 || found.st_nlink > 0) return false;
    close(file.descriptor);
    return true;
  });
}

OpenFile& find_or_open(std::vector<OpenFile>& files, const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) fail(path);
  const auto known = std::find_if(files.begin(), files.end(), [&](const OpenFile& file) {
    return file.device == found.st_dev && file.inode == found.st_ino;
  });
  if (known != files.end()) return *known;
  files.reserve(files.size() + 1);
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail(path);
  // Where another file took its place since, this may be a second descriptor of one: flock() sees to it.
  (void)fstat(descriptor, &found);
  return files.emplace_back(OpenFile{found.st_dev, found.st_ino, descriptor, 0});
}

}  // namespace

bool is_remote(const std::string& path) {
  struct statfs info {};
  if (statfs(path.c_str(), &info) != 0) return false;
  return std::find(remote_file_systems.begin(), remote_file_systems.end(), info.f_type) !=
         remote_file_systems.end();
}

bool InodeLock::try_lock(const std::string& path, Mode mode) {
  if (is_remote(path)) return true;
  OpenFiles& files = open_files();
  const std::scoped_lock lock{files.mutex};
  close_deleted(files.all);
  OpenFile& file = find_or_open(files.all, path);
  const bool is_shared = mode == Mode::shared;
  if (file.holders < 0 || (file.holders > 0 && !is_shared)) return false;
  if (file.holders == 0 && flock(file.descriptor, (is_shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK || errno == EINTR) return false;
    fail(path);
  }
  file.holders = is_shared ? file.holders + 1 : -1;
  descriptor_ = file.descriptor;
  return true;
}

InodeLock::~InodeLock() {
  if (descriptor_ < 0) return;
  OpenFiles& files = open_files();
  const std::scoped_lock lock{files.mutex};
  for (OpenFile& file : files.all) {
    if (file.descriptor != descriptor_) continue;
    file.holders = std::max(file.holders - 1, 0);
    if (file.holders == 0) flock(descriptor_, LOCK_UN);
  }
}

}  // namespace fenceguard::sqlite
