#pragma once

// The storage of a demonstration: an HTTP server that keeps objects in memory and knows nothing of tokens.
// PUT answers 204, GET 200 or 404, DELETE 204 or 404, all else 405.

namespace fenceguard::demo {

// Serves on a free port of 127.0.0.1, whose HOST:PORT is the first line of stdout, until stdin ends. Throws
// Unavailable if there is none.
void run_plain_storage();

}  // namespace fenceguard::demo
