import io.github.fenceguard.Client;
import io.github.fenceguard.FenceguardException;
import io.github.fenceguard.FenceguardException.Stale;
import io.github.fenceguard.Lease;
import io.github.fenceguard.jdbc.Fence;
import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;

/** What the scenarios do not reach: JDBC, ShedLock's provider, many threads. usage: CASE URL… */
public final class JavaClientTest {
  private static final Duration TTL = Duration.ofSeconds(60);

  public static void main(String[] arguments) throws Exception {
    switch (arguments[0]) {
      case "jdbc" -> jdbc(arguments[1]);
      case "shedlock" -> shedlock(client(arguments));
      case "threads" -> threads(client(arguments));
      default -> throw new IllegalArgumentException(arguments[0]);
    }
    System.out.println("passed");
  }

  private static Client client(String[] arguments) {
    return new Client(URI.create(arguments[1]), URI.create(arguments[2]), null);
  }

  private static void expect(Object wanted, Object seen) {
    if (!wanted.equals(seen)) throw new AssertionError("wanted " + wanted + ", seen " + seen);
  }

  private static <E extends Exception> E thrown(Class<E> kind, Callable<?> call) throws Exception {
    Object seen;
    try {
      seen = call.call();
    } catch (Exception error) {
      if (kind.isInstance(error)) return kind.cast(error);
      throw error;
    }
    throw new AssertionError("wanted " + kind + ", seen " + seen);
  }

  private static void jdbc(String url) throws Exception {
    try (Connection connection = DriverManager.getConnection(url)) {
      connection.setAutoCommit(false);
      expect(true, admit(connection, 2, "b", OptionalLong.of(7)));
      update(connection, 130);
      connection.commit();
      expect(false, admit(connection, 2, "b", OptionalLong.of(7)));
      connection.rollback();
      Stale stale = thrown(Stale.class, () -> admit(connection, 1, "a", OptionalLong.empty()));
      expect(List.of(1L, 2L), List.of(stale.token, stale.highest));
      thrown(SQLException.class, () -> update(connection, 150));
      connection.rollback();
      thrown(FenceguardException.Conflict.class, () -> admit(connection, 2, "c", OptionalLong.empty()));
      connection.rollback();
      expect("42P01", thrown(SQLException.class, () -> connection.createStatement().execute("select * from nowhere"))
          .getSQLState());
      connection.rollback();
      connection.setAutoCommit(true);
      thrown(IllegalStateException.class, () -> admit(connection, 3, "d", OptionalLong.empty()));
    }
  }

  private static boolean admit(Connection connection, long token, String holder, OptionalLong sequence) throws SQLException {
    return Fence.admit(connection, "accounts/42", token, holder, sequence);
  }

  private static int update(Connection connection, int balance) throws SQLException {
    return connection.createStatement().executeUpdate("update account set balance = " + balance + " where id = 42");
  }

  private static void shedlock(Client client) throws Exception {
    FenceguardLockProvider provider = new FenceguardLockProvider(client, "jobs/");
    SimpleLock first = provider.lock(task("reports", Duration.ZERO)).orElseThrow();
    Lease lease = FenceguardLockProvider.lease();
    expect("jobs/reports", lease.resource());
    lease.write("1");
    expect(Optional.empty(), provider.lock(task("reports", Duration.ZERO)));
    SimpleLock extended = first.extend(TTL, Duration.ZERO).orElseThrow();
    extended.unlock();
    thrown(IllegalStateException.class, FenceguardLockProvider::lease);
    SimpleLock second = provider.lock(task("reports", Duration.ofSeconds(60))).orElseThrow();
    FenceguardLockProvider.lease().write("2");
    thrown(Stale.class, () -> lease.write("3"));
    second.unlock();
    expect(Optional.empty(), provider.lock(task("reports", Duration.ZERO))); // for the least that it is held
    expect(Optional.empty(), first.extend(TTL, Duration.ZERO));
  }

  private static LockConfiguration task(String name, Duration atLeast) {
    return new LockConfiguration(Instant.now(), name, TTL, atLeast);
  }

  /** Eight threads over one client, each with a lease and twenty writes, and then a counter that all of them raise. */
  private static void threads(Client client) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(8);
    List<Callable<Object>> work = IntStream.range(0, 8).<Callable<Object>>mapToObj(i -> () -> {
      try (Lease lease = client.acquire("own/" + i, TTL, Duration.ZERO)) {
        for (int n = 1; n <= 20; n++) lease.write(String.valueOf(n));
        expect("20", new String(lease.read().orElseThrow()));
      }
      return client.run("shared", TTL, TTL, 1, lease -> {
        int before = lease.read().map(body -> Integer.parseInt(new String(body))).orElse(0);
        return lease.write(String.valueOf(before + 1));
      });
    }).toList();
    for (Future<Object> done : threads.invokeAll(work)) done.get();
    threads.shutdown();
    expect("8", new String(client.read("shared").orElseThrow()));
  }
}
