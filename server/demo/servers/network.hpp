#pragma once

// The network of a demonstration: a relay in front of a storage that passes bytes on, and can hold those of
// one request until it is released, whatever becomes of its sender.

#include <string>

namespace fenceguard::demo {

// Listens on a free port of 127.0.0.1, whose HOST:PORT is the first line of stdout, and passes on to storage
// (HOST:PORT) until stdin ends. Lines of stdin control it:
//   hold     answers 'ready'; the first connection that sends something from now on is held, and when it does
//            the line 'held' follows. All others pass.
//   release  lets go of what was held, and answers 'released'.
// Throws InvalidInput for an address that is none, Unavailable if there is no free port.
void run_network(const std::string& storage);

}  // namespace fenceguard::demo
