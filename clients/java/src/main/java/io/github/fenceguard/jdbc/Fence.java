package io.github.fenceguard.jdbc;

import io.github.fenceguard.FenceguardException;
import io.github.fenceguard.FenceguardException.Conflict;
import io.github.fenceguard.FenceguardException.Rejected;
import io.github.fenceguard.FenceguardException.Stale;
import io.github.fenceguard.FenceguardException.Unavailable;
import io.github.fenceguard.FenceguardException.Unknown;
import io.github.fenceguard.Lease;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLNonTransientConnectionException;
import java.sql.SQLRecoverableException;
import java.sql.SQLTransientConnectionException;
import java.sql.SQLWarning;
import java.util.OptionalLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.sql.DataSource;

/**
 * The check in the caller's own PostgreSQL transaction: fence and data stand or fall with its commit. The database has
 * the functions that 'fenceguard sql postgres' prints. What each SQLSTATE means is in the table 'In a transaction of
 * PostgreSQL' of clients/README.md.
 */
public final class Fence {
  // Of an answer to COMMIT: these do not prove a rollback.
  private static final String UNPROVEN = "40003|08...|25P04|57P..|58...|XX...";
  private static final String ENDED = "57P0[1-5]|25P0[34]";
  private static final String LOST = ENDED + "|08...";

  private Fence() {}

  /** What transaction() runs. It is not to end the transaction itself: what it had committed would be called Stale. */
  @FunctionalInterface
  public interface Work<T> {
    T run(Connection connection) throws Exception;
  }

  /** As transaction() below, on a connection of a pool, such as HikariCP's. */
  public static <T> T transaction(DataSource pool, Lease lease, Work<T> work) throws Exception {
    Connection connection = pool.getConnection();
    try {
      return transaction(connection, lease, work);
    } finally {
      quietly(connection::close); // whatever it says, the commit's end is known
    }
  }

  /** As below, without a sequence. */
  public static <T> T transaction(Connection connection, Lease lease, Work<T> work) throws Exception {
    return transaction(connection, lease, OptionalLong.empty(), work);
  }

  /**
   * Admits the lease's claim, runs work and commits; answers what work did, or null where a write of this sequence took
   * effect before. After a failure it rolls back. What ends the session before COMMIT was sent (the next holder's drain,
   * an administrator, the network) is Stale with the problem 'session-ended': nothing was committed, and Client.run()
   * takes the lock again. Unknown: COMMIT was sent, and its answer did not come. What work throws passes through, but
   * for what refusal() maps.
   */
  public static <T> T transaction(Connection connection, Lease lease, OptionalLong sequence, Work<T> work) throws Exception {
    boolean wasAutoCommit = connection.getAutoCommit();
    boolean isOver = false; // the transaction is, and the server said so
    connection.setAutoCommit(false);
    try {
      T value;
      try {
        boolean isAdmitted = admit(connection, lease.resource(), lease.token(), lease.holder(), sequence);
        value = isAdmitted ? work.run(connection) : null;
        if (connection.isClosed()) throw new SQLNonTransientConnectionException("the connection is closed", "08003");
      } catch (Throwable error) {
        isOver = quietly(connection::rollback); // an answer shows that the session is alive
        throw inside(error, isOver, lease.token());
      }
      try {
        commit(connection);
        isOver = true;
      } catch (Exception error) {
        isOver = !(error instanceof Unknown);
        throw error;
      }
      return value;
    } finally {
      // Of a transaction that is still open this would be a commit.
      if (wasAutoCommit && isOver) quietly(() -> connection.setAutoCommit(true));
    }
  }

  private interface Step {
    void run() throws SQLException;
  }

  private static boolean quietly(Step step) {
    try {
      step.run();
      return true;
    } catch (SQLException error) {
      return false;
    }
  }

  private static Exception inside(Throwable error, boolean isAlive, long token) {
    if (error instanceof Error fatal) throw fatal;
    if (error instanceof FenceguardException judged) throw judged;
    if (!isAlive && isLost(error)) throw new Stale(error.getMessage(), token, error);
    for (Throwable cause = error; cause != null && !(cause instanceof FenceguardException); cause = cause.getCause()) {
      if (!(cause instanceof SQLException told)) continue;
      if (told.getSQLState() != null && told.getSQLState().matches(ENDED)) throw new Stale(told.getMessage(), token, told);
      refusal(told, token);
    }
    return (Exception) error;
  }

  /**
   * Admits the lease's claim for the present transaction; to be called before its first write and its first savepoint.
   * Throws Stale or Conflict, after which the transaction can only be rolled back. REQUIRES: autocommit is off.
   */
  public static void admit(Connection connection, Lease lease) throws SQLException {
    admit(connection, lease.resource(), lease.token(), lease.holder(), OptionalLong.empty());
  }

  /** As above. False: the write with this sequence took effect before, so write nothing. */
  public static boolean admit(Connection connection, String resource, long token, String holder, OptionalLong sequence)
      throws SQLException {
    if (connection.getAutoCommit()) throw new IllegalStateException("a claim is admitted for a transaction: switch autocommit off");
    try (PreparedStatement call = connection.prepareStatement("select fenceguard.admit(?, ?, ?, ?)")) {
      call.setString(1, resource);
      call.setLong(2, token);
      call.setString(3, holder);
      if (sequence.isPresent()) call.setLong(4, sequence.getAsLong());
      else call.setNull(4, java.sql.Types.BIGINT);
      try (ResultSet verdict = call.executeQuery()) {
        verdict.next();
        return verdict.getString(1).equals("admitted");
      }
    } catch (SQLException error) {
      if (isLost(error)) throw new Stale(error.getMessage(), token, error);
      throw refusal(error, token);
    }
  }

  /**
   * Commits. Throws Unknown where the connection ended before the answer: it may have taken effect; and, as its problem
   * 'not-replicated', where COMMIT brought a warning: that the wait for a synchronous standby was cancelled is one, in the
   * server's language, after which a failover may lose it. Warnings of before are cleared.
   */
  public static void commit(Connection connection) throws SQLException {
    try {
      connection.clearWarnings();
      connection.commit();
      for (SQLWarning warning = connection.getWarnings(); warning != null; warning = warning.getNextWarning()) {
        if (String.valueOf(warning.getSQLState()).startsWith("01"))
          throw new Unknown("commit: " + warning.getMessage() + ": a failover may lose it", "not-replicated", warning);
      }
    } catch (SQLException error) {
      String state = error.getSQLState();
      if (state != null && !state.matches(UNPROVEN)) throw refusal(error, 0);
      throw new Unknown("commit: " + error.getMessage(), error);
    }
  }

  /**
   * What an error of the database says about the claim, at a row of a protected table too: throws Stale, Conflict,
   * Rejected (problem 'missing', 'implausible' or 'malformed') or Unavailable; returns every other error. Where the server
   * ended the session (57P01) it throws Unknown, because it may be the answer to COMMIT; transaction() and admit() know
   * that it is not. A COMMIT is for commit(), which knows of more errors that they prove nothing.
   */
  public static SQLException refusal(SQLException error, long token) {
    String told = error.getMessage();
    switch (String.valueOf(error.getSQLState())) {
      case "ZF001" -> throw new Stale(told, token, highest(error));
      case "ZF002" -> throw new Conflict(told, token, highest(error));
      case "25P03" -> throw new Stale(told, token, error); // it is judged before the next statement runs
      case "57P01", "57P02", "57P03", "57P04", "57P05", "25P04" -> throw new Unknown("the session ended: " + told, error);
      case "ZF003" -> throw new Rejected(told, "missing", error);
      case "ZF004" -> throw new Rejected(told, "implausible", error);
      case "22023" -> throw new Rejected(told, "malformed", error);
      case "55P03" -> throw new Unavailable(told, error);
      default -> {
        return error;
      }
    }
  }

  /**
   * Whether it can be that of a session that has ended. Pools and frameworks keep the driver's error as its cause; what was
   * judged already keeps its outcome.
   */
  private static boolean isLost(Throwable error) {
    for (Throwable cause = error; cause != null && !(cause instanceof FenceguardException); cause = cause.getCause()) {
      if (!(cause instanceof SQLException told)) continue;
      if (told.getSQLState() != null) return told.getSQLState().matches(LOST);
      if (told instanceof SQLNonTransientConnectionException || told instanceof SQLRecoverableException
          || told instanceof SQLTransientConnectionException || "Connection is closed".equals(told.getMessage())) return true;
    }
    return false;
  }

  private static long highest(SQLException error) {
    Matcher told = Pattern.compile("\"highest\"\\s*:\\s*\"?([0-9]{1,19})").matcher(error.getMessage());
    return told.find() ? Long.parseLong(told.group(1)) : 0;
  }
}
