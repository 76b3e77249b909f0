#pragma once

namespace fenceguard::net {

// What there is of a connection's bytes behind those that a read gave, as far as the read can tell.
enum class Rest {
  none,     // nothing had come: what comes later is an event of its own
  perhaps,  // unknown; there may be no event for it
  more,     // something that the next read takes, or takes as a part of what it waits for
};

}  // namespace fenceguard::net
