#pragma once

// From the settings --fence-method, --fence-on-failure and --fence-timeout to the fencer.

#include <memory>

#include "guard/source/url.hpp"
#include "server/cli/terminal/settings.hpp"
#include "server/fencing/fencer.hpp"

namespace fenceguard::cli {

inline constexpr Setting fence_method_setting{
    .name = "fence-method",
    .placeholder = "METHOD",
    .help =
        "how an old holder is cut off before the next one goes on: command:PATH, http:URL or https:URL, "
        "terminate-backends:user=NAME (exec, postgres: or mariadb: storage), kill-client:WHICH (exec, "
        "redis: storage), upstream-reset (serve, http: storage); several are tried in order until one "
        "succeeds",
    .is_repeatable = true};
inline constexpr Setting fence_on_failure_setting{
    .name = "fence-on-failure",
    .placeholder = "WHAT",
    .fallback = "continue",
    .help = "where no fence method succeeds: wait (nothing is let in until one does) or continue"};
inline constexpr Setting fence_timeout_setting{.name = "fence-timeout",
                                               .kind = Kind::duration,
                                               .placeholder = "TIME",
                                               .fallback = "10s",
                                               .help = "how long each fence method may take"};

// Of 'serve' in front of storage; null where no method is given. Throws InvalidInput for a method that is
// none or does not fit, and for settings that would have no effect.
[[nodiscard]] std::shared_ptr<Fencer> open_lane_fencer(const Settings& settings, const Url& storage);

// Likewise of 'exec'.
[[nodiscard]] std::unique_ptr<Fencer> open_exec_fencer(const Settings& settings);

}  // namespace fenceguard::cli
