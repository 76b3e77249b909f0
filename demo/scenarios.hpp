#pragma once

// The scenarios of 'fenceguard demo', one file each. Those of a product are there where it is part of the
// build.

#include <string>
#include <vector>

#include "demo/kit/scenario.hpp"

namespace fenceguard::demo {

// All of them, gc-pause first.
[[nodiscard]] std::vector<Scenario> scenarios();

// storage: URL, or 'http' for a plain HTTP storage of its own; empty: a fresh file in the run's folder.
// source: URL; empty: the storage's own. via_sidecar: the clients are redis-cli or psql, and the sidecar
// stands in front of Redis, one of its own where there is no storage. Throws InvalidInput for what cannot be
// used.
[[nodiscard]] Scenario gc_pause(const std::string& storage, const std::string& source,
                                bool via_sidecar = false);
[[nodiscard]] Scenario lost_update();
[[nodiscard]] Scenario read_before_advance();
[[nodiscard]] Scenario delayed_packet();
[[nodiscard]] Scenario cut_off();

[[nodiscard]] Scenario expire_crash();
[[nodiscard]] Scenario foreign_unlock();
[[nodiscard]] Scenario failover();
[[nodiscard]] Scenario redlock_restart();
[[nodiscard]] Scenario clock_jump();

[[nodiscard]] Scenario session_expiry();
[[nodiscard]] Scenario herd();

[[nodiscard]] Scenario etcd_restore();

}  // namespace fenceguard::demo
