#pragma once

// A file with secrets, which only its owner may read; or one that a service manager hands over (below
// $CREDENTIALS_DIRECTORY), which others may read as it was told to, but not write. Thread-safe.

#include <cstddef>
#include <string>

namespace fenceguard {

enum class Reading {
  first,  // at the start: also from a pipe, which is waited for
  again,  // while others wait: from a regular file only
};

// The content of the file at path, of at most bytes_max bytes, which is a number of whole KiB. kind names it
// in what is thrown: 'the claim key file'. Throws InvalidInput where it cannot be read, is no file, is
// longer, or can be read or written by users that must not.
[[nodiscard]] std::string read_private_file(const std::string& kind, const std::string& path,
                                            std::size_t bytes_max, Reading reading = Reading::first);

}  // namespace fenceguard
