#include "server/cli/target/open_storage.hpp"

#include <fmt/format.h>

#include "guard/error.hpp"
#include "server/products.hpp"

namespace fenceguard::cli {
namespace {

constexpr std::string_view default_state = "sqlite:fenceguard-state.db";
// The lanes in front of it have a cache of their own.
constexpr std::size_t state_cache_entries = 1'000;

}  // namespace

std::unique_ptr<Storage> open_with_state(const Settings& settings, const Url& storage,
                                         StorageOptions options) {
  if (!products().find(storage).needs_state) {
    if (!settings.is_given("state")) return products().open_storage(storage, options);
    throw InvalidInput(
        fmt::format("--state: a {}: storage keeps the fences with its data; leave it out", storage.scheme));
  }
  auto of_state = options;
  of_state.initialise = false;
  of_state.cache_entries = state_cache_entries;
  options.lane.state = products().open_storage(fence_keeper(settings, storage), of_state);
  return products().open_storage(storage, options);
}

Url fence_keeper(const Settings& settings, const Url& storage) {
  if (!products().find(storage).needs_state) return storage;
  return settings.url("state").value_or(Url::parse(default_state));
}

}  // namespace fenceguard::cli
