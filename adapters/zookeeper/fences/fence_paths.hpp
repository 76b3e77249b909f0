#pragma once

// FencePaths: the nodes below a ROOT that belong to fenceguard itself.
//
//   ROOT/fences/NAME     the fence of one resource, see fence_record.hpp
//   ROOT/floor           the floor, and the mark that the namespace was initialised
//   ROOT/highest         see highest_mark.hpp
//   ROOT/rebased/...     what was set by hand, the operator and the time
//   ROOT/offset          of the token source
//   ROOT/locks/...       of the token source
//   ROOT/lock_paths/...  likewise: where else there are locks
//
// NAME is the resource as one segment: '/', '%' and the characters that ZooKeeper takes in no path are
// percent-encoded. Thread-safe.

#include <optional>
#include <string>
#include <string_view>

#include "guard/resource.hpp"

namespace fenceguard::zookeeper {

class FencePaths {
 public:
  explicit FencePaths(const std::string& root);

  [[nodiscard]] const std::string& root() const noexcept { return root_; }
  [[nodiscard]] const std::string& fences() const noexcept { return fences_; }
  [[nodiscard]] const std::string& floor() const noexcept { return floor_; }
  [[nodiscard]] const std::string& highest() const noexcept { return highest_; }
  [[nodiscard]] const std::string& rebased() const noexcept { return rebased_; }
  [[nodiscard]] const std::string& offset() const noexcept { return offset_; }
  [[nodiscard]] std::string fence(const Resource& resource) const;

  // True for a path that no guarded write may name.
  [[nodiscard]] bool is_reserved(std::string_view path) const;

 private:
  std::string root_;
  std::string fences_;
  std::string floor_;
  std::string highest_;
  std::string rebased_;
  std::string offset_;
  std::string locks_;
  std::string lock_paths_;
};

// Throws InvalidInput for a path that ZooKeeper does not take, or takes for another than it looks like; what
// it says of single characters beyond ASCII is left to it. A sequence is added to the path if is_sequential.
void require_path(std::string_view path, bool is_sequential = false);

// The resource's name as one segment of a path, and back. Nothing for a segment that is no resource's.
[[nodiscard]] std::string segment_of(const Resource& resource);
[[nodiscard]] std::optional<Resource> resource_of(std::string_view segment);

}  // namespace fenceguard::zookeeper
