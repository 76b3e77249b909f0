#pragma once

// A disk of a known speed for SQLite: from install() on, every connection of the process waits a fixed time
// where SQLite asks for a sync, in place of the sync itself. For figures that do not depend on whose disk it
// is; whatever is measured through it says so.
//
// Thread-safe after install().

#include <chrono>

namespace fenceguard::bench {

// REQUIRES: no connection is open, and it is called once.
void install_slow_disk();

// What a sync takes from now on; nothing: the real one.
void set_sync_time(std::chrono::microseconds time);

}  // namespace fenceguard::bench
