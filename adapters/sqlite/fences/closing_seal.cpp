#include "adapters/sqlite/fences/closing_seal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "adapters/sqlite/file/schema.hpp"
#include "guard/error.hpp"
#include "guard/resource.hpp"
#include "guard/support/descriptor.hpp"

namespace fenceguard::sqlite {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file{path};
  std::string line;
  std::getline(file, line);
  return line;
}

[[noreturn]] void cannot_write(const std::string& path) {
  throw Unavailable(fmt::format("cannot write {}: {}: check owner, mode and mount of its folder", path,
                                std::generic_category().message(errno)));
}

// Making and deleting an entry moves both times of a folder to the same moment; a new name, owner or mode
// moves its last change alone.
bool only_entries_changed(const std::string& folder) {
  struct statx found {};
  if (::statx(AT_FDCWD, folder.c_str(), 0, STATX_MTIME | STATX_CTIME, &found) != 0) return false;
  return found.stx_mtime.tv_sec == found.stx_ctime.tv_sec &&
         found.stx_mtime.tv_nsec == found.stx_ctime.tv_nsec;
}

}  // namespace

ClosingSeal::ClosingSeal(const std::string& state)
    : path_{std::filesystem::weakly_canonical(state).string() + "-closed"} {}

std::int64_t ClosingSeal::make(std::string_view upstream) const {
  remove();
  {
    const Descriptor file{::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)};
    if (file.number() < 0) cannot_write(path_);
    const auto nonce = Holder::random().id() + "\n";
    if (::write(file.number(), nonce.data(), nonce.size()) != static_cast<ssize_t>(nonce.size()))
      cannot_write(path_);
  }
  if (const auto digest = find(upstream)) return *digest;
  throw Unavailable(fmt::format("{} or the boot of the machine cannot be read", path_));
}

std::optional<std::int64_t> ClosingSeal::find(std::string_view upstream) const {
  const auto nonce = first_line(path_);
  const auto boot = first_line("/proc/sys/kernel/random/boot_id");
  struct statx found {};
  constexpr unsigned wanted = STATX_INO | STATX_CTIME;
  const bool is_there = ::statx(AT_FDCWD, path_.c_str(), AT_SYMLINK_NOFOLLOW, wanted, &found) == 0;
  if (nonce.empty() || boot.empty() || !is_there) return std::nullopt;
  const auto digest = Checksum{}
                          .add(nonce)
                          .add(boot)
                          .add(upstream)
                          .add(std::int64_t{found.stx_dev_major})
                          .add(std::int64_t{found.stx_dev_minor})
                          .add(static_cast<std::int64_t>(found.stx_ino))
                          .add(std::int64_t{found.stx_ctime.tv_sec})
                          .add(std::int64_t{found.stx_ctime.tv_nsec})
                          .value();
  return digest == 0 || digest == 1 ? 2 : digest;
}

void ClosingSeal::remove_if_moved() const {
  const std::filesystem::path path{path_};
  std::error_code error;
  if (std::filesystem::exists(path, error) && !only_entries_changed(path.parent_path().string())) remove();
}

void ClosingSeal::remove() const {
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT) cannot_write(path_);
}

}  // namespace fenceguard::sqlite
