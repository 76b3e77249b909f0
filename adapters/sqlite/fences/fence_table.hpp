#pragma once

// FenceTable: the rows of fenceguard_fence and fenceguard_namespace as values, nothing more. All within the
// caller's transaction. A row whose checksum is wrong throws Unavailable and is never believed.
//
// Not thread-safe.

#include <optional>
#include <string>

#include "adapters/sqlite/file/database.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::sqlite {

// The one row of fenceguard_namespace.
struct NamespaceRow {
  std::int64_t floor = 0;
  std::int64_t highest = 0;
  std::int64_t resources = 0;
  std::int64_t object_version = 0;
  std::string generation;

  friend bool operator==(const NamespaceRow&, const NamespaceRow&) = default;
};

class FenceTable {
 public:
  explicit FenceTable(sqlite3* connection);

  // Nothing if the namespace was never initialised.
  [[nodiscard]] std::optional<NamespaceRow> load_namespace();
  void store_namespace(const NamespaceRow& row);
  // The row of a namespace that was never initialised, and may have records all the same. Reads the whole
  // table.
  [[nodiscard]] NamespaceRow fresh_namespace(std::int64_t floor);

  [[nodiscard]] std::optional<Fence> load(std::string_view resource);
  // The record and the floor; of a namespace that is not initialised, the floor is 0.
  [[nodiscard]] FenceView view(const Resource& resource);
  void store(std::string_view resource, const Fence& fence);
  void remove(std::string_view resource);

  [[nodiscard]] FencePage list(const FenceListing& listing);
  // The next limit fences with a token below lowest_live, after the resource 'after' in bytewise order.
  [[nodiscard]] FencePage list_below(Token lowest_live, std::string_view after, std::size_t limit);
  // The highest token of all records; 0 if there is none. Reads the whole table.
  [[nodiscard]] std::int64_t highest();
  void log_rebase(const FenceStore::Rebase& rebase, std::int64_t from);

 private:
  [[nodiscard]] FencePage read_page(Statement& query, std::string_view prefix, std::size_t limit);

  Statement load_namespace_;
  Statement store_namespace_;
  Statement load_;
  Statement store_;
  Statement remove_;
  Statement list_;
  Statement list_below_;
  Statement highest_;
  Statement count_;
  Statement log_rebase_;
};

}  // namespace fenceguard::sqlite
