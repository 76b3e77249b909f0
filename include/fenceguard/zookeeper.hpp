#pragma once

// Writes to ZooKeeper under a claim, and its token source: link fenceguard::zookeeper. See docs/zookeeper.md.

#include "adapters/zookeeper/client.hpp"
#include "adapters/zookeeper/guard.hpp"
#include "adapters/zookeeper/token_source.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
