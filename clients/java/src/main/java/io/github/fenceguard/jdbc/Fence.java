package io.github.fenceguard.jdbc;

import io.github.fenceguard.FenceguardException.Conflict;
import io.github.fenceguard.FenceguardException.Stale;
import io.github.fenceguard.Lease;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.OptionalLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The check in the caller's own PostgreSQL transaction: fence and data stand or fall with its commit. The database has
 * the functions that 'fenceguard sql postgres' prints.
 */
public final class Fence {
  private Fence() {}

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
      throw refusal(error, token);
    }
  }

  /** Stale or Conflict for an error that is one, at a row of a protected table too; else the error. */
  public static SQLException refusal(SQLException error, long token) {
    String state = String.valueOf(error.getSQLState());
    if (state.equals("ZF001")) throw new Stale(error.getMessage(), token, highest(error));
    if (state.equals("ZF002")) throw new Conflict(error.getMessage(), token, highest(error));
    return error;
  }

  private static long highest(SQLException error) {
    Matcher told = Pattern.compile("\"highest\"\\s*:\\s*\"?([0-9]{1,19})").matcher(error.getMessage());
    return told.find() ? Long.parseLong(told.group(1)) : 0;
  }
}
