#pragma once

// What becomes of a session, and of a node that is watched. Values.

#include <functional>

namespace fenceguard::zookeeper {

enum class SessionState {
  connecting,  // not yet, or not any more, connected: whatever lives by the session is no longer certain
  connected,
  expired,  // over: the ensemble ended the session, or the Session was closed
  refused,  // the credentials were refused: over as well
};
// What happened to a node that was looked at with a watch; a watch tells once, unless the call that set it
// failed. A node that was to be read and was not there counts as gone. The session's end tells as well, with
// 'gone' false; the destructor does so on its own thread.
using NodeWatch = std::function<void(bool gone)>;

}  // namespace fenceguard::zookeeper
