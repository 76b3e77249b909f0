#include "guard/scheme.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "guard/error.hpp"

namespace fenceguard {
namespace {

template <class Function>
const Function& offered(const Function& function, const Url& url, std::string_view what) {
  if (!function) throw InvalidInput(fmt::format("{}: names no {}", url.scheme, what));
  return function;
}

}  // namespace

const Scheme& SchemeTable::find(const Url& url) const {
  std::vector<std::string> known;
  for (const auto& scheme : schemes_) {
    if (std::find(scheme.names.begin(), scheme.names.end(), url.scheme) != scheme.names.end()) return scheme;
    known.insert(known.end(), scheme.names.begin(), scheme.names.end());
  }
  throw InvalidInput(
      fmt::format("unknown scheme '{}:'; known are: {}:", url.scheme, fmt::join(known, ":, ")));
}

std::unique_ptr<TokenSource> SchemeTable::open_source(const Url& url) const {
  return offered(find(url).open_source, url, "token source")(url);
}

void SchemeTable::require_present(const Url& url) const {
  if (const auto& require = find(url).require_present) require(url);
}

std::unique_ptr<Storage> SchemeTable::open_storage(const Url& url, const StorageOptions& options) const {
  return offered(find(url).open_storage, url, "storage")(url, options);
}

std::unique_ptr<UnguardedDoor> SchemeTable::open_unguarded(const Url& url) const {
  return offered(find(url).open_unguarded, url, "storage that can be reached round the guard")(url);
}

std::unique_ptr<DirectDoor> SchemeTable::open_direct(const Url& url, const std::string& place) const {
  return offered(find(url).open_direct, url, "storage whose clients write to it themselves")(url, place);
}

std::vector<Finding> SchemeTable::examine_source(const Url& url) const {
  return offered(find(url).examine_source, url, "token source")(url);
}

std::vector<Finding> SchemeTable::examine_storage(const Url& url) const {
  return offered(find(url).examine_storage, url, "storage")(url);
}

std::string SchemeTable::install_sql(std::string_view name) const {
  Url url;
  url.scheme = name;
  return offered(find(url).install_sql, url, "database to install SQL in")();
}

std::vector<Demonstration> SchemeTable::demonstrations() const {
  std::vector<Demonstration> all;
  for (const auto& scheme : schemes_)
    all.insert(all.end(), scheme.demonstrations.begin(), scheme.demonstrations.end());
  return all;
}

}  // namespace fenceguard
