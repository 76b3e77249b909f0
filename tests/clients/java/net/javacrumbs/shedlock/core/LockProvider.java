package net.javacrumbs.shedlock.core;

import java.util.Optional;

/** ShedLock's interface, version 5, as far as a provider needs it to be compiled. */
public interface LockProvider {
  Optional<SimpleLock> lock(LockConfiguration configuration);
}
