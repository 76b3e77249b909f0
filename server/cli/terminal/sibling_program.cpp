#include "server/cli/terminal/sibling_program.hpp"

#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace fenceguard::cli {

std::string find_sibling(std::string_view name) {
  std::error_code unreadable;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", unreadable).parent_path();
  if (unreadable) return {};
  for (const auto& place : {folder, folder.parent_path() / "libexec" / "fenceguard"}) {
    const auto file = place / name;
    std::error_code missing;
    if (std::filesystem::is_regular_file(file, missing) && access(file.c_str(), X_OK) == 0)
      return file.string();
  }
  return {};
}

}  // namespace fenceguard::cli
