#pragma once

// What the tests of the token source share: one ensemble for those that break nothing, a root for each test,
// and waiting for what must come.

#include <chrono>
#include <functional>
#include <string>

#include "adapters/zookeeper/session.hpp"
#include "tests/process/eventually.hpp"
#include "tests/zookeeper/ensemble.hpp"

namespace fenceguard::test {

// A server alone, for the whole test program. Its sessions may be as short as 200 ms.
[[nodiscard]] Ensemble& shared_ensemble();

// '/root1', '/root2', ...
[[nodiscard]] std::string fresh_root();

// A session of the test's own with the shared ensemble, connected.
[[nodiscard]] zookeeper::Session& observer();

// Waits until the node is gone.
[[nodiscard]] bool wait_until_gone(const std::string& path);

}  // namespace fenceguard::test
