#pragma once

// Writes to Redis under a claim, and its token source: link fenceguard::redis. See docs/redis.md.

#include "adapters/redis/client.hpp"
#include "adapters/redis/guard.hpp"
#include "adapters/redis/token_source.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
