import static java.nio.charset.StandardCharsets.UTF_8;

import io.github.fenceguard.Client;
import io.github.fenceguard.FenceguardException;
import io.github.fenceguard.FenceguardException.Stale;
import io.github.fenceguard.FenceguardException.Unknown;
import io.github.fenceguard.Lease;
import io.github.fenceguard.jdbc.Fence;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import javax.sql.DataSource;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.postgresql.PGConnection;
import org.postgresql.ds.PGSimpleDataSource;

/** What the scenarios do not reach: JDBC, ShedLock's provider, many threads. usage: CASE URL… */
public final class JavaClientTest {
  private static final Duration TTL = Duration.ofSeconds(60);

  public static void main(String[] arguments) throws Exception {
    switch (arguments[0]) {
      case "jdbc" -> jdbc(arguments[1]);
      case "standby" -> standby(arguments[1]);
      case "ended" -> ended(arguments[1], arguments[2]);
      case "locales" -> locales(client(arguments));
      case "shedlock" -> shedlock(client(arguments));
      case "sleep" -> sleep(client(arguments), Path.of(arguments[3]));
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

  private static void sleep(Client client, Path uptime) throws Exception {
    try (Lease lease = client.acquire("a", Duration.ofMinutes(10), Duration.ZERO)) {
      expect(false, lease.isLost());
      Files.writeString(uptime, "4600.00 0.00\n");
      expect(Optional.of(Lease.End.EXPIRED), lease.awaitLost(Duration.ZERO));
    }
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

  /** The server waits for a standby that is not there, and somebody cancels each wait. */
  private static void standby(String url) throws Exception {
    try (Connection connection = DriverManager.getConnection(url)) {
      connection.setAutoCommit(false);
      admit(connection, 1, "a", OptionalLong.empty());
      update(connection, 130);
      Unknown unknown = thrown(Unknown.class, () -> {
        Fence.commit(connection);
        return null;
      });
      expect("not-replicated", unknown.problem);
      admit(connection, 1, "a", OptionalLong.empty());
      Fence.commit(connection); // nothing was written, nothing is waited for
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

  /** A holder that stopped inside its transaction is cut off by the next: what it hears on waking. */
  private static void ended(String url, String control) throws Exception {
    Client client = new Client(URI.create(control), URI.create(control), null);
    Lease lease = client.adopt("accounts/42", 1, "a");
    DataSource pool = pool(url);
    Stale stale = thrown(Stale.class, () -> Fence.transaction(pool, lease, connection -> {
      update(connection, 150);
      terminate(url, connection);
      return update(connection, 151);
    }));
    expect(List.of("session-ended", 1L), List.of(stale.problem, stale.token));
    thrown(Stale.class, () -> Fence.transaction(pool, lease, connection -> {
      terminate(url, connection);
      thrown(SQLException.class, () -> update(connection, 150));
      try {
        return update(connection, 150); // the driver itself has closed the connection
      } catch (SQLException error) {
        throw new IllegalStateException("as frameworks do", error);
      }
    }));
    try (Connection connection = pool.getConnection()) {
      connection.setAutoCommit(false);
      terminate(url, connection);
      thrown(Stale.class, () -> admit(connection, 1, "a", OptionalLong.empty()));
    }
    for (String state : List.of("57P01", "57P02", "25P04")) { // which may answer a COMMIT
      thrown(Unknown.class, () -> Fence.refusal(new SQLException("ended", state), 1));
      thrown(Stale.class, () -> Fence.transaction(pool, lease, connection -> {
        throw new SQLException("ended", state);
      }));
    }
    thrown(Stale.class, () -> Fence.refusal(new SQLException("ended", "25P03"), 1));
    thrown(IllegalStateException.class, () -> Fence.transaction(pool, lease, connection -> { // of a transaction elsewhere
      throw new IllegalStateException(new Unknown("commit", new SQLException("ended", "57P01")));
    }));
    thrown(Unknown.class, () -> Fence.transaction(pool, lease, connection -> {
      update(connection, 150);
      terminate(url, connection);
      return null;
    }));
    for (boolean ends : List.of(false, true)) {
      thrown(IllegalArgumentException.class, () -> Fence.transaction(pool, lease, connection -> {
        update(connection, 150);
        if (ends) terminate(url, connection);
        throw new IllegalArgumentException("not enough");
      }));
    }
    try (Connection connection = pool.getConnection()) {
      expect("100", balance(connection));
      Fence.transaction(connection, lease, open -> update(open, 101));
      expect(true, connection.getAutoCommit());
      expect("101", balance(connection));
    }
    List<Long> tokens = new ArrayList<>();
    client.run("accounts/42", TTL, TTL, 5, granted -> Fence.transaction(pool, granted, connection -> {
      tokens.add(granted.token());
      if (tokens.size() == 1) terminate(url, connection);
      return update(connection, 130);
    }));
    expect(true, tokens.size() == 2 && tokens.get(1) > tokens.get(0));
  }

  private static DataSource pool(String url) {
    PGSimpleDataSource pool = new PGSimpleDataSource();
    pool.setURL(url);
    return pool;
  }

  private static void terminate(String url, Connection connection) throws SQLException {
    int backend = connection.unwrap(PGConnection.class).getBackendPID();
    try (Connection other = DriverManager.getConnection(url)) {
      other.createStatement().execute("select pg_terminate_backend(" + backend + ", 30000)");
    }
  }

  private static String balance(Connection connection) throws SQLException {
    ResultSet rows = connection.createStatement().executeQuery("select balance from account");
    rows.next();
    return rows.getString(1);
  }

  /** A lease, its renewal and writes where numbers have digits of their own, and where 'I' has no dot. */
  private static void locales(Client client) throws Exception {
    for (String tag : List.of("ar-EG", "fa-IR", "tr-TR")) {
      Locale.setDefault(Locale.forLanguageTag(tag));
      String resource = "IJ ß/" + tag; // to be encoded
      int value = client.run(resource, TTL, TTL, 1, lease -> {
        expect("Lease " + resource + " token " + lease.claim().get("Fencing-Token"), lease.toString()); // no holder
        lease.renew();
        lease.write("1".getBytes(UTF_8), OptionalLong.of(7));
        expect(Lease.Verdict.DUPLICATE, lease.write("2".getBytes(UTF_8), OptionalLong.of(7)));
        return Integer.parseInt(new String(lease.read().orElseThrow(), UTF_8));
      });
      expect(1, value);
    }
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
