#pragma once

// FenceTransaction: one connection with its tables, and the fences that the present transaction has looked at
// and changed. A fence is looked up in those, then in the cache of durable ones, then in the table, and so
// once per transaction; what was changed is written once, in the table's order. What was changed, and what
// was found in the table, enters the cache when the transaction was committed.
//
// Belongs to the committer's thread.

#include <memory_resource>
#include <optional>
#include <string>
#include <unordered_map>

#include "adapters/sqlite/fences/fence_table.hpp"
#include "adapters/sqlite/file/database.hpp"
#include "adapters/sqlite/lock/lease_table.hpp"
#include "adapters/sqlite/objects/object_table.hpp"
#include "guard/store/fence_cache.hpp"

namespace fenceguard::sqlite {

class FenceTransaction {
 public:
  // Opens the file, which must exist with its tables, and settles what its log ends in. cache is cleared, and
  // filled if all fences have room in it. Throws Unavailable.
  FenceTransaction(const std::string& path, FenceCache& cache);

  // Sees in the transaction itself whether another process has initialised the namespace meanwhile.
  void begin();
  [[nodiscard]] CommitEnding commit();
  void rollback() noexcept;

  [[nodiscard]] bool is_initialised() const noexcept { return namespace_.has_value(); }
  // Looks again whether another process has initialised the namespace. REQUIRES: the transaction, if one is
  // open, has changed nothing yet.
  void look_again();
  // The namespace as the present transaction sees it. REQUIRES: is_initialised().
  [[nodiscard]] const NamespaceRow& row() const { return *namespace_; }
  void initialise(std::int64_t floor);
  void raise_floor(std::int64_t floor);
  [[nodiscard]] std::int64_t next_object_version() { return ++namespace_->object_version; }

  // Finds the highest token seen anew, after a fence was lowered by hand. Reads the whole table.
  void find_highest();

  // The fence as the present transaction sees it. Stays until record(), remove() or the transaction's end.
  [[nodiscard]] const FenceView& view(const Resource& resource);
  // REQUIRES: the fence is not lower than the one that view() gives, but for a rebase.
  void record(const Resource& resource, Fence fence);
  void remove(const Resource& resource);

  [[nodiscard]] Database& database() noexcept { return database_; }
  [[nodiscard]] FenceTable& fences() noexcept { return fences_; }
  [[nodiscard]] ObjectTable& objects() noexcept { return objects_; }
  [[nodiscard]] LeaseTable& leases() noexcept { return leases_; }

  // What answers hold in memory until the commit is bounded: ask for room before, and note the bytes after.
  [[nodiscard]] bool has_room() const noexcept { return bytes_held_ < bytes_held_max; }
  void note_held(std::size_t bytes) noexcept { bytes_held_ += bytes; }

 private:
  static constexpr std::size_t bytes_held_max = 64UL * 1024 * 1024;

  struct Seen {
    FenceView view;
    bool is_changed = false;
    bool is_cached = false;  // as it is here
  };
  struct ByName {
    std::size_t operator()(const Resource& resource) const noexcept {
      return std::hash<std::string>{}(resource.name());
    }
  };
  using AllSeen = std::pmr::unordered_map<Resource, Seen, ByName>;

  void open_log(const std::string& path);
  void fill_cache();
  [[nodiscard]] Seen look_up(const Resource& resource);
  [[nodiscard]] Seen& see(const Resource& resource);
  void write_changed();
  void cache_seen();

  Database database_;
  FenceTable fences_;
  ObjectTable objects_;
  LeaseTable leases_;
  FenceCache& cache_;
  bool cache_holds_all_ = false;  // what is not in the cache is not in the table either
  std::optional<NamespaceRow> namespace_;
  std::optional<NamespaceRow> durable_namespace_;
  std::pmr::unsynchronized_pool_resource pool_;  // a map's nodes are used again by the next transaction
  AllSeen seen_{&pool_};
  std::size_t bytes_held_ = 0;
};

}  // namespace fenceguard::sqlite
