#pragma once

// The library that knows no product: claims and their judge, leases, token sources, and open_source() by URL,
// for which fenceguard::schemes is linked.

#include "adapters/schemes.hpp"
#include "guard/claim.hpp"
#include "guard/error.hpp"
#include "guard/guard.hpp"
#include "guard/judge.hpp"
#include "guard/lease.hpp"
#include "guard/runner.hpp"
#include "guard/token_source.hpp"
