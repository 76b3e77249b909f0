package io.github.fenceguard;

import java.time.Duration;

/** What a call can end with beside success, each as a class of its own. What is not known is null, or 0. */
@SuppressWarnings("serial")
public abstract class FenceguardException extends RuntimeException {
  /** What is known of an ending. found: see Misdirected. */
  record Facts(long token, long highest, Duration retryAfter, String problem, int status, String found) {
    static final Facts NONE = new Facts(0, 0, null, null, 0, null);
  }

  public final long token;
  /** The highest token that the guard has seen for the resource. */
  public final long highest;
  public final transient Duration retryAfter;
  /** The problem's name, such as 'malformed', and the answer's status. */
  public final String problem;
  public final int status;
  public final String found;

  FenceguardException(String message, Facts facts) {
    super(message);
    token = facts.token;
    highest = facts.highest;
    retryAfter = facts.retryAfter;
    problem = facts.problem;
    status = facts.status;
    found = facts.found;
  }

  /** The claim was refused and nothing was written: undo, take the lock again, start over from the read. */
  public abstract static class Refused extends FenceguardException {
    Refused(String message, Facts facts) { super(message, facts); }
  }

  /** A newer token was seen, the fence was closed, or an own later write overtook this one. */
  public static final class Stale extends Refused {
    Stale(String message, Facts facts) { super(message, facts); }

    public Stale(String message, long token, long highest) {
      this(message, new Facts(token, highest, null, "stale", 0, null));
    }

    /** The session ended inside a transaction, before COMMIT. Its problem is 'session-ended'. */
    public Stale(String message, long token, Throwable cause) {
      this("the session ended inside the transaction, before COMMIT: nothing was committed (" + message + ")",
          new Facts(token, 0, null, "session-ended", 0, null));
      initCause(cause);
    }
  }

  /** Another holder uses the same token: the token source issued it twice. */
  public static final class Conflict extends Refused {
    Conflict(String message, Facts facts) { super(message, facts); }

    public Conflict(String message, long token, long highest) {
      this(message, new Facts(token, highest, null, "conflict", 0, null));
    }
  }

  /** Another holder has the lock. */
  public static final class Held extends FenceguardException {
    Held(String message, Facts facts) { super(message, facts); }
  }

  /** The lease ended, says the server. */
  public static final class Lost extends FenceguardException {
    Lost(String message, Facts facts) { super(message, facts); }
  }

  /** Nothing was written: there is no server, or it says so. */
  public static final class Unavailable extends FenceguardException {
    Unavailable(String message, Facts facts) { super(message, facts); }

    public Unavailable(String message, Throwable cause) {
      this(message, Facts.NONE);
      initCause(cause);
    }
  }

  /** It may or may not have taken effect, and was not repeated. Read before you decide. */
  public static final class Unknown extends FenceguardException {
    Unknown(String message, Facts facts) { super(message, facts); }

    public Unknown(String message, Throwable cause) {
      this(message, Facts.NONE);
      initCause(cause);
    }

    public Unknown(String message, String problem, Throwable cause) {
      this(message, new Facts(0, 0, null, problem, 0, null));
      initCause(cause);
    }
  }

  /** Something else answered: found is 'data' or 'control' (the wrong side), or 'other', which judged nothing. */
  public static final class Misdirected extends FenceguardException {
    Misdirected(String message, Facts facts) { super(message, facts); }
  }

  /** The bearer token is missing, wrong, expired or not enough. */
  public static final class Unauthorized extends FenceguardException {
    Unauthorized(String message, Facts facts) { super(message, facts); }
  }

  /** A clear no of another kind, with nothing written. */
  public static final class Rejected extends FenceguardException {
    Rejected(String message, Facts facts) { super(message, facts); }

    public Rejected(String message, String problem, Throwable cause) {
      this(message, new Facts(0, 0, null, problem, 0, null));
      initCause(cause);
    }
  }
}
