#pragma once

// Scheme: what one adapter offers under a URL scheme. The table of all schemes is made in
// adapters/schemes.cpp, the one place where URLs meet products; everything above asks the table.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "guard/demonstration.hpp"
#include "guard/storage.hpp"
#include "guard/token_source.hpp"
#include "guard/url.hpp"

namespace fenceguard {

// One line of 'fenceguard doctor'.
struct Finding {
  enum class Level { ok, warning, danger };
  Level level = Level::ok;
  std::string check;    // what was looked at: 'journal mode'
  std::string message;  // what was found and, if it is not well, what to do

  friend bool operator==(const Finding&, const Finding&) = default;
};

// Functions that are empty are not offered. All throw InvalidInput for a bad URL and Unavailable for what
// cannot be reached or is not fit to be used, with a sentence that says what to do.
struct Scheme {
  std::vector<std::string> names;
  std::function<std::unique_ptr<TokenSource>(const Url&)> open_source;
  // Where opening makes what is not there, for callers that must not: throws Unavailable unless it is there.
  std::function<void(const Url&)> require_present;
  std::function<std::unique_ptr<Storage>(const Url&, const StorageOptions&)> open_storage;
  bool needs_state = false;  // LaneOptions::state must be given to open_storage
  std::function<std::unique_ptr<UnguardedDoor>(const Url&)> open_unguarded;
  // For storages without objects, whose clients write to them themselves. place: a fresh name.
  std::function<std::unique_ptr<DirectDoor>(const Url&, const std::string& place)> open_direct;
  std::function<std::vector<Finding>(const Url&)> examine_source;
  std::function<std::vector<Finding>(const Url&)> examine_storage;
  std::function<std::string()> install_sql;   // for services that keep the fence in their own database
  std::vector<Demonstration> demonstrations;  // what 'fenceguard demo' can tell of the product
};

class SchemeTable {
 public:
  explicit SchemeTable(std::vector<Scheme> schemes) : schemes_{std::move(schemes)} {}

  // The scheme of url. Throws InvalidInput that lists the known ones.
  [[nodiscard]] const Scheme& find(const Url& url) const;

  // As the functions of Scheme; InvalidInput where the scheme does not offer it.
  [[nodiscard]] std::unique_ptr<TokenSource> open_source(const Url& url) const;
  void require_present(const Url& url) const;
  [[nodiscard]] std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options) const;
  [[nodiscard]] std::unique_ptr<UnguardedDoor> open_unguarded(const Url& url) const;
  [[nodiscard]] std::unique_ptr<DirectDoor> open_direct(const Url& url, const std::string& place) const;
  [[nodiscard]] std::vector<Finding> examine_source(const Url& url) const;
  [[nodiscard]] std::vector<Finding> examine_storage(const Url& url) const;
  // The SQL to install for the scheme of this name ('sqlite').
  [[nodiscard]] std::string install_sql(std::string_view name) const;
  // Of all schemes.
  [[nodiscard]] std::vector<Demonstration> demonstrations() const;

 private:
  std::vector<Scheme> schemes_;
};

}  // namespace fenceguard
