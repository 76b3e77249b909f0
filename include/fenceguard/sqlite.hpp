#pragma once

// Writes to SQLite under a claim: link fenceguard::sqlite. See docs/sqlite.md.

#include "adapters/sqlite/guard.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
