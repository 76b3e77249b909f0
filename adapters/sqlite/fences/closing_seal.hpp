#pragma once

// ClosingSeal: the file PATH-closed beside a lane's state. The process that closes the state in order makes
// it anew and keeps its digest in the state; the next one believes that state only where both belong
// together. A copy, a backup or a volume that was moved does not: the digest is over a number that is drawn
// for each seal, over the file's inode and its last change (of content, name, links, owner or mode), which no
// copy takes along, and over this boot of the machine. A power cut is a new boot, so nothing here has to be
// synced.
//
// A folder that was renamed, and is put back after a guard worked with a copy in its place, is told by its
// own times (remove_if_moved). What changes its owner or mode looks the same, and on a file system that does
// not keep the two times alike every start does: that costs the settle time, and nothing else.
//
// What it cannot tell: that another state was served in between while this one lay untouched, through another
// path, a renamed folder further up, a link or a mount; that a renamed folder got or lost an entry since; and
// a volume that was rolled back below its file system while the machine ran on.
//
// Thread safety: one thread at a time.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fenceguard::sqlite {

class ClosingSeal {
 public:
  // state: the file, which is there.
  explicit ClosingSeal(const std::string& state);

  // Makes a new one and answers its digest, which is neither 0 nor 1. upstream: what the state is for. Throws
  // Unavailable.
  [[nodiscard]] std::int64_t make(std::string_view upstream) const;
  // The digest of the one that lies there; nothing if there is none, or it cannot be read.
  [[nodiscard]] std::optional<std::int64_t> find(std::string_view upstream) const;
  // Throws Unavailable if it is still there.
  void remove() const;
  // Removes one whose folder was renamed since the last entry in it was made or deleted: before the state is
  // opened, because SQLite makes entries. Throws Unavailable.
  void remove_if_moved() const;

 private:
  const std::string path_;
};

}  // namespace fenceguard::sqlite
