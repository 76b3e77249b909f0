#pragma once

// The actors of a demonstration that speak HTTP, each a process of its own: a storage that keeps objects in
// memory and knows nothing of tokens, and a network in front of it that can hold a request. Each serves on a
// free port of 127.0.0.1, prints its HOST:PORT as the first line of stdout, and ends with stdin.

#include <string>

namespace fenceguard::demo {

// PUT answers 204, GET 200 or 404, DELETE 204 or 404, all else 405. Throws Unavailable if there is no port.
void run_plain_storage();

// Passes each request on to storage (HOST:PORT), and the answer back. Lines of stdin control it:
//   hold     answers 'ready'; the next request is held, and when it comes the line 'held' follows.
//   release  passes on the request that was held, whatever became of its sender, and answers 'released'.
// Throws InvalidInput for an address that is none, Unavailable if there is no free port.
void run_network(const std::string& storage);

}  // namespace fenceguard::demo
