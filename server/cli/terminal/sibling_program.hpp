#pragma once

// The programs of one installation, fenceguard and fenceguard-demo, find each other by where they stand.

#include <string>
#include <string_view>

namespace fenceguard::cli {

// The path of the program of this name beside the one that runs, or in libexec/fenceguard beside its folder;
// empty: in neither. Symbolic links to the one that runs are followed. PATH is not asked: a caller may set it
// for a program that runs with more rights than his, and what stands there may be of another version.
[[nodiscard]] std::string find_sibling(std::string_view name);

}  // namespace fenceguard::cli
