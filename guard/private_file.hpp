#pragma once

// A file with secrets, which only its owner may read. Thread-safe.

#include <cstddef>
#include <string>

namespace fenceguard {

// The content of the file at path, of at most bytes_max bytes, which is a number of whole KiB. kind names it
// in what is thrown: 'the claim key file'. Throws InvalidInput where it cannot be read, is longer, or can be
// read by others than its owner.
[[nodiscard]] std::string read_private_file(const std::string& kind, const std::string& path,
                                            std::size_t bytes_max);

}  // namespace fenceguard
