#include "adapters/sqlite/scheme.hpp"

#include "adapters/sqlite/doctor.hpp"
#include "adapters/sqlite/file.hpp"
#include "adapters/sqlite/schema.hpp"
#include "adapters/sqlite/storage.hpp"
#include "adapters/sqlite/token_source.hpp"
#include "guard/error.hpp"

namespace fenceguard::sqlite {
namespace {

std::string path_of(const Url& url) {
  url.require_known_parameters({});
  if (!url.authority.empty() || !url.user.empty()) {
    throw InvalidInput(
        "an sqlite: URL is sqlite:PATH, such as sqlite:fenceguard.db or sqlite:/var/lib/app/fences.db");
  }
  if (url.path.empty()) throw InvalidInput("an sqlite: URL needs a path: sqlite:fenceguard.db");
  return url.path;
}

}  // namespace

Scheme scheme() {
  Scheme scheme;
  scheme.names = {"sqlite"};
  scheme.open_source = [](const Url& url) { return open_source(path_of(url)); };
  scheme.require_present = [](const Url& url) { require_present(path_of(url)); };
  scheme.open_storage = [](const Url& url, const StorageOptions& options) {
    return open_storage(path_of(url), options);
  };
  scheme.open_unguarded = [](const Url& url) { return open_unguarded(path_of(url)); };
  scheme.examine_source = [](const Url& url) { return examine_source(path_of(url)); };
  scheme.examine_storage = [](const Url& url) { return examine_storage(path_of(url)); };
  scheme.install_sql = [] { return install_sql(); };
  return scheme;
}

}  // namespace fenceguard::sqlite
