#pragma once

// The settings of 'fenceguard serve': its one table, from which --help, the example configuration and the
// docs follow, and what they come to.

#include <vector>

#include "guard/store/storage.hpp"
#include "server/cli/terminal/settings.hpp"
#include "server/sidecar.hpp"

namespace fenceguard::cli {

[[nodiscard]] std::vector<Setting> serve_settings();

// Throw InvalidInput with the name of the setting that is wrong.
[[nodiscard]] SidecarOptions sidecar_options(const Settings& settings, const Url& storage);
// How long to wait for another guard that has the state.
[[nodiscard]] std::chrono::milliseconds lock_wait_of(const Settings& settings);
// Without LaneOptions::state. initialise: see StorageOptions.
[[nodiscard]] StorageOptions storage_options(const Settings& settings, bool initialise);

}  // namespace fenceguard::cli
