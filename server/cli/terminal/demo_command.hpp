#pragma once

// What 'fenceguard demo' is told: shared by the binary, which reads it and hands over, and by
// fenceguard-demo.

#include "server/cli/terminal/command.hpp"

namespace fenceguard::cli {

// Without run and hand_over, of which either program sets its own.
[[nodiscard]] Command demo_description();

}  // namespace fenceguard::cli
