#pragma once

// Staying: what 'lease acquire' does with a lease that lives by a connection of its process. It keeps the
// lease until it is told to end, as 'etcdctl lock' does.

#include "guard/token_source.hpp"

namespace fenceguard::cli {

// Notes SIGTERM, SIGINT and SIGHUP from its creation on, instead of dying of them.
class EndingSignals {
 public:
  EndingSignals();
  ~EndingSignals();
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;
};

// Keeps the lease until a signal has come, and gives it back. Answers an exit status: done, or refused where
// the lease was lost before; says why on stderr. REQUIRES: the signals are noted since before the grant was
// told.
[[nodiscard]] int stay(const EndingSignals& signals, TokenSource& source, Grant grant);

}  // namespace fenceguard::cli
