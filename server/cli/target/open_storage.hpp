#pragma once

// Opens a storage as the settings say, and before it the state that keeps its fences, where it cannot keep
// them itself.

#include <memory>

#include "guard/store/storage.hpp"
#include "server/cli/terminal/settings.hpp"

namespace fenceguard::cli {

// The setting 'state', for the commands that open an http: storage.
inline constexpr Setting state_setting{
    .name = "state",
    .kind = Kind::url,
    .placeholder = "URL",
    .help = "where the fences of an http: storage are kept; left out, sqlite:fenceguard-state.db"};

// REQUIRES: the settings have 'state'. Throws InvalidInput where one is given that the storage has no use
// for, and as the scheme's functions do.
[[nodiscard]] std::unique_ptr<Storage> open_with_state(const Settings& settings, const Url& storage,
                                                       StorageOptions options);

// What a stopped guard keeps its fences in: the storage itself, or its state.
[[nodiscard]] Url fence_keeper(const Settings& settings, const Url& storage);

}  // namespace fenceguard::cli
