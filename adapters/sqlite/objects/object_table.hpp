#pragma once

// ObjectTable: the rows of fenceguard_object as values. All within the caller's transaction. A row whose
// checksum is wrong throws Unavailable.
//
// Not thread-safe.

#include <optional>
#include <string>

#include "adapters/sqlite/file/database.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::sqlite {

class ObjectTable {
 public:
  explicit ObjectTable(sqlite3* connection);

  // The version of the object; nothing if there is none.
  [[nodiscard]] std::optional<std::int64_t> version(std::string_view path);
  [[nodiscard]] std::optional<Object> load(std::string_view path, std::string_view generation);
  void store(const ObjectWrite& write, std::int64_t version);
  void remove(std::string_view path);
  // Reads every object and its checksum.
  void verify();

 private:
  Statement version_;
  Statement load_;
  Statement store_;
  Statement remove_;
  Statement all_;
};

// A version as an ETag, with its quotes.
[[nodiscard]] std::string etag(std::string_view generation, std::int64_t version);

// Whether the write's preconditions hold for an object with this ETag, or for none (RFC 9110, sections 13.1.1
// and 13.1.2: If-Match compares strongly, If-None-Match weakly).
[[nodiscard]] bool preconditions_hold(const ObjectWrite& write,
                                      const std::optional<std::string>& present_etag);

}  // namespace fenceguard::sqlite
