#pragma once

// Writes to PostgreSQL under a claim, and its token source: link fenceguard::postgres. See
// docs/postgres/library.md.

#include "adapters/postgres/connect.hpp"
#include "adapters/postgres/guard.hpp"
#include "adapters/postgres/pipelined_guard.hpp"
#include "adapters/postgres/token_source.hpp"
#include "adapters/postgres/versioned_table.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
