import io.github.fenceguard.Client;
import io.github.fenceguard.FenceguardException.Held;
import io.github.fenceguard.FenceguardException.Lost;
import io.github.fenceguard.FenceguardException.Unavailable;
import io.github.fenceguard.Lease;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * ShedLock with fencing tokens: the lock of each task is a lease of a guard, and the task writes under its claim. A task
 * that was stopped for longer than lockAtMostFor is refused by the guard, whatever it believes.
 *
 * <pre>{@code
 * @Scheduled(cron = "0 0 3 * * *")
 * @SchedulerLock(name = "reports", lockAtMostFor = "10m", lockAtLeastFor = "1m")
 * void report() {
 *   Lease lease = FenceguardLockProvider.lease();   // of the lock around this task
 *   Fence.admit(connection, lease);                 // in its transaction; or lease.write(...)
 * }
 * }</pre>
 *
 * Not known endings pass on as exceptions: a task whose lock may stand is not started.
 */
public final class FenceguardLockProvider implements LockProvider {
  private static final ThreadLocal<Lease> CURRENT = new ThreadLocal<>();

  private final Client client;
  private final String prefix;

  /** prefix: what stands before a task's name in the resource, such as 'jobs/'. */
  public FenceguardLockProvider(Client client, String prefix) {
    this.client = client;
    this.prefix = prefix;
  }

  /** The lease of the task that this thread runs; ShedLock locks and runs on one thread. */
  public static Lease lease() {
    Lease lease = CURRENT.get();
    if (lease == null) throw new IllegalStateException("no task runs on this thread under a lock");
    return lease;
  }

  @Override
  public Optional<SimpleLock> lock(LockConfiguration configuration) {
    try {
      Lease lease = client.acquire(prefix + configuration.getName(), configuration.getLockAtMostFor(), Duration.ZERO, false);
      CURRENT.set(lease);
      return Optional.of(new FencedLock(lease, Instant.now().plus(configuration.getLockAtLeastFor())));
    } catch (Held held) {
      return Optional.empty();
    }
  }

  private record FencedLock(Lease lease, Instant atLeastUntil) implements SimpleLock {
    @Override
    public void unlock() {
      CURRENT.remove();
      Duration left = Duration.between(Instant.now(), atLeastUntil);
      try {
        if (left.isNegative() || left.isZero()) lease.release();
        else lease.renew(left);
      } catch (Lost | Unavailable ended) {
        // It ends with its time to live, or has ended.
      }
    }

    /** Empty where the lock was lost. */
    @Override
    public Optional<SimpleLock> extend(Duration lockAtMostFor, Duration lockAtLeastFor) {
      try {
        lease.renew(lockAtMostFor);
        return Optional.of(new FencedLock(lease, Instant.now().plus(lockAtLeastFor)));
      } catch (Lost lost) {
        return Optional.empty();
      }
    }
  }
}
