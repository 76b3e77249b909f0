package io.github.fenceguard;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.github.fenceguard.FenceguardException.Lost;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A lock that is held, renewed every third of its time to live until close(). Whether a write is still good is the
 * guard's to judge: isLost() says when to stop, and a lost lease may write for as long as no higher token was seen.
 */
public final class Lease implements AutoCloseable {
  /** Why a lease is lost. */
  public enum End { ENDED, EXPIRED }

  private static final Duration RENEWAL_MAX = Duration.ofSeconds(10);
  private static final Duration RELEASE_MAX = Duration.ofSeconds(5);

  private final Client client;
  private final String resource;
  private final long token;
  private final String holder;
  private final Duration ttl; // null: granted elsewhere
  private final CompletableFuture<End> lost = new CompletableFuture<>();
  private volatile String signature;
  private volatile long sentAt; // of the last renewal that succeeded, by Clock.now()
  private volatile long overAt;

  Lease(Client client, String resource, Map<String, String> grant, Duration ttl, long sentAt) {
    this.client = client;
    this.resource = resource;
    this.token = Long.parseLong(grant.get("token"));
    this.holder = grant.get("holder");
    this.ttl = ttl;
    this.signature = grant.get("signature");
    if (ttl != null) extend(sentAt, ttl, grant);
  }

  public String resource() {
    return resource;
  }

  public long token() {
    return token;
  }

  public String holder() {
    return holder;
  }

  /** Looks at the clock, so that a process that was stopped knows when it goes on. */
  public boolean isLost() {
    if (ttl != null && Clock.now() - overAt >= 0) lost.complete(End.EXPIRED);
    return lost.isDone();
  }

  /** Completes when the lease is lost or closed. */
  public CompletableFuture<End> lost() {
    isLost();
    return lost.copy();
  }

  /** Waits for the loss, up to limit; empty if it did not come. */
  public Optional<End> awaitLost(Duration limit) throws InterruptedException {
    long until = Clock.now() + limit.toNanos();
    while (!isLost() && Clock.now() - until < 0) awaitUntil(until);
    return Optional.ofNullable(lost.getNow(null));
  }

  /** As write() with the text's bytes in UTF-8. */
  public Verdict write(String body) {
    return write(body.getBytes(UTF_8));
  }

  /** PUTs body as the object, once. */
  public Verdict write(byte[] body) {
    return write(body, OptionalLong.empty());
  }

  /** sequence: a number that rises from write to write, so that a duplicate is told. */
  public Verdict write(byte[] body, OptionalLong sequence) {
    Map<String, String> fields = claim();
    sequence.ifPresent(number -> fields.put("Fencing-Sequence", Long.toString(number)));
    return Verdict.of(client.data("PUT", resource, fields, body));
  }

  public Verdict delete() {
    return Verdict.of(client.data("DELETE", resource, claim(), new byte[0]));
  }

  /** What a write ended with. */
  public enum Verdict {
    ADMITTED, DUPLICATE;

    static Verdict of(HttpResponse<byte[]> answer) {
      return Call.verdict(answer).equals("duplicate") ? DUPLICATE : ADMITTED;
    }
  }

  /** A fenced read; empty where there is no object. */
  public Optional<byte[]> read() {
    return client.read(resource, claim());
  }

  /** One renewal, now; a lease that was lost stays lost. */
  public void renew() {
    renew(ttl == null ? RENEWAL_MAX : ttl);
  }

  /** As renew(), with another time to live until the next one. */
  public void renew(Duration asked) {
    boolean wasLost = isLost();
    long now = Clock.now();
    long limit = Math.min(asked.toMillis() / 3, RENEWAL_MAX.toMillis());
    String wish = "{\"ttl_ms\":" + asked.toMillis() + "}";
    try {
      Map<String, String> grant =
          Call.lease(client.control("PUT", resource, resource, claim(), wish, Duration.ofMillis(limit)));
      signature = grant.getOrDefault("signature", signature);
      if (!wasLost && ttl != null) extend(now, asked, grant);
    } catch (Lost ended) {
      lost.complete(End.ENDED);
      throw ended;
    }
  }

  /** Gives the lock back, and throws what that ends with. */
  public void release() {
    lost.complete(End.ENDED);
    client.control("DELETE", resource, resource, claim(), "", RELEASE_MAX);
  }

  /** As release(); where that fails, the lease ends with its time to live. */
  @Override
  public void close() {
    try {
      release();
    } catch (FenceguardException left) {
      // See above.
    }
  }

  /** The header fields of the claim. */
  public Map<String, String> claim() {
    Map<String, String> fields = new TreeMap<>();
    fields.put("Fencing-Token", Long.toString(token));
    fields.put("Fencing-Holder", holder);
    if (signature != null) fields.put("Fencing-Signature", signature);
    return fields;
  }

  void startRenewal() {
    Thread thread = new Thread(this::keepRenewed, "fenceguard renewal of " + resource);
    thread.setDaemon(true);
    thread.start();
  }

  private void keepRenewed() {
    long dueAt = sentAt + ttl.toNanos() / 3;
    try {
      while (!isLost()) {
        awaitUntil(dueAt);
        if (Clock.now() - dueAt < 0 || isLost()) continue;
        try {
          renew();
          dueAt = sentAt + ttl.toNanos() / 3;
        } catch (FenceguardException again) {
          dueAt = Clock.now() + ttl.toNanos() / 20;
        }
      }
    } catch (InterruptedException ended) {
      // The lease ends with its time to live.
    }
  }

  /** Until then, the end of the term, or the loss. */
  private void awaitUntil(long moment) throws InterruptedException {
    long now = Clock.now();
    long left = Math.min(moment - now, ttl == null ? Long.MAX_VALUE : overAt - now);
    try {
      lost.get(Math.max(1, left), TimeUnit.NANOSECONDS);
    } catch (TimeoutException | ExecutionException passed) {
      // The caller looks again.
    }
  }

  private void extend(long moment, Duration asked, Map<String, String> grant) {
    String left = grant.getOrDefault("expires_in_ms", "");
    sentAt = moment;
    overAt = moment + (left.matches("[0-9]{1,12}") ? TimeUnit.MILLISECONDS.toNanos(Long.parseLong(left)) : asked.toNanos());
  }

  @Override
  public String toString() {
    return "Lease " + resource + " token " + token;
  }
}
