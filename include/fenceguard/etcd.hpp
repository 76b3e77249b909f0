#pragma once

// Writes to etcd under a claim, and its token source: link fenceguard::etcd. See docs/etcd.md.

#include "adapters/etcd/client.hpp"
#include "adapters/etcd/guard.hpp"
#include "adapters/etcd/token_source.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
