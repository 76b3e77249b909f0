#pragma once

// Client: a process that adds to an account under a lock, as a careful service would: take the lock, read,
// work out the new balance, write, give the lock back; where the guard refuses the write as stale, drop it
// and start again. It looks at no clock and asks nobody whether it still holds the lock, because no such
// answer would still be true at the moment of the write.

#include "guard/cli/demo_messages.hpp"

namespace fenceguard {

// Entry of the client process: its task is the first line of stdin, its messages are lines of stdout. Returns
// an exit status.
int demo_client_main(int argc, char** argv);

}  // namespace fenceguard
