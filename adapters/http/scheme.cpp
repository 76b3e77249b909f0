#include "adapters/http/scheme.hpp"

#include <fmt/format.h>

#include "adapters/http/demo/demos.hpp"
#include "adapters/http/storage.hpp"
#include "guard/error.hpp"

namespace fenceguard::proxy {
namespace {

// What can be seen from here of the upstream. That it has no other way in can not.
std::vector<Finding> examine(const Url& url) {
  std::vector<Finding> findings;
  if (url.scheme == "http") {
    try {
      static_cast<void>(open_unguarded(url)->read("fenceguard-doctor"));
      findings.push_back({Finding::Level::ok, "upstream", "answers"});
    } catch (const Unavailable& error) {
      findings.push_back({Finding::Level::warning, "upstream", error.what()});
    } catch (const OutcomeUnknown& error) {
      findings.push_back({Finding::Level::danger, "upstream",
                          fmt::format("it began no answer that could be read: {}", error.what())});
    }
  }
  findings.push_back({Finding::Level::warning, "other ways in",
                      "cannot be seen from here: nothing but the guard may reach the upstream, and it must "
                      "finish or abandon a request within --settle"});
  return findings;
}

}  // namespace

Scheme scheme() {
  Scheme scheme;
  scheme.names = {"http", "https"};
  scheme.needs_state = true;
  scheme.open_storage = [](const Url& url, const StorageOptions& options) {
    return open_storage(url, options);
  };
  scheme.open_unguarded = [](const Url& url) {
    if (url.scheme != "http") throw InvalidInput("this goes to an http: storage only, not over TLS");
    return open_unguarded(url);
  };
  scheme.examine_storage = [](const Url& url) { return examine(url); };
  scheme.demonstrations = demonstrations();
  return scheme;
}

}  // namespace fenceguard::proxy
