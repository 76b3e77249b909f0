package io.github.fenceguard;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.github.fenceguard.FenceguardException.Facts;
import io.github.fenceguard.FenceguardException.Held;
import io.github.fenceguard.FenceguardException.Lost;
import io.github.fenceguard.FenceguardException.Refused;
import io.github.fenceguard.FenceguardException.Unavailable;
import io.github.fenceguard.FenceguardException.Unknown;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

/**
 * A guard as its clients see it: leases from its control side, guarded writes and fenced reads at its data side.
 * Everything that is not a success is a FenceguardException. Safe for threads, virtual ones included.
 */
public final class Client {
  private static final Duration ANSWER_MAX = Duration.ofSeconds(10);
  /** The time for an answer of the data side: a write may wait in its lane. */
  public static final Duration DEFAULT_TIMEOUT = Duration.ofSeconds(60);
  private static final Duration WAIT_MAX = Duration.ofSeconds(600);
  private static final long PAUSE_NS = TimeUnit.MILLISECONDS.toNanos(100);

  private final URI data;
  private final URI control;
  private final String bearer;
  private final HttpClient http;
  private final Duration timeout;

  /** A guard on the default ports of this machine. */
  public Client() {
    this(URI.create("http://127.0.0.1:7420"), URI.create("http://127.0.0.1:7421"), null);
  }

  /** bearer: the token for the control side, or null. */
  public Client(URI data, URI control, String bearer) {
    this(data, control, bearer, HttpClient.newBuilder());
  }

  /** http: such as with an SSLContext of your own. */
  public Client(URI data, URI control, String bearer, HttpClient.Builder http) {
    this.data = data;
    this.control = control;
    this.bearer = bearer;
    this.http = http.version(HttpClient.Version.HTTP_1_1).followRedirects(HttpClient.Redirect.NEVER)
        .connectTimeout(Duration.ofSeconds(5)).build();
    this.timeout = DEFAULT_TIMEOUT;
  }

  private Client(Client other, Duration timeout) {
    data = other.data;
    control = other.control;
    bearer = other.bearer;
    http = other.http;
    this.timeout = timeout;
  }

  /** The same with another time for an answer of the data side. What was sent is then Unknown. */
  public Client withTimeout(Duration limit) {
    if (limit.isNegative() || limit.isZero()) throw new IllegalArgumentException("a time-out is above 0, not " + limit);
    return new Client(this, limit);
  }

  public Duration timeout() {
    return timeout;
  }

  /** What run() runs under a lease. */
  @FunctionalInterface
  public interface Body<T> {
    T run(Lease lease) throws Exception;
  }

  /** Takes the lock, for which it waits, and has it renewed; to be closed. Throws Held if the wait was in vain. */
  public Lease acquire(String resource, Duration ttl, Duration wait) {
    return acquire(resource, ttl, wait, true);
  }

  /** As acquire(); a lease that is not renewed ends with its time to live. */
  public Lease acquire(String resource, Duration ttl, Duration wait, boolean isRenewed) {
    String holder = UUID.randomUUID().toString().replace("-", "");
    long overAt = Clock.now() + wait.toNanos();
    boolean isUncertain = false;
    while (true) {
      try {
        Lease lease = ask(resource, ttl, Math.max(0, overAt - Clock.now()), holder);
        if (isRenewed) lease.startRenewal();
        return lease;
      } catch (Held | Lost | Unavailable | Unknown fault) {
        long left = overAt - Clock.now();
        if (left <= 0 && (isUncertain || !(fault instanceof Unknown))) {
          boolean mayStand = isUncertain && fault instanceof Unavailable;
          throw mayStand ? new Unknown("a lease may stand: " + fault.getMessage(), Facts.NONE) : fault;
        }
        isUncertain |= fault instanceof Unknown;
        boolean isTold = fault instanceof Unavailable && fault.retryAfter != null;
        pause(Math.min(isTold ? fault.retryAfter.toNanos() : PAUSE_NS, Math.max(left, PAUSE_NS)), fault);
      }
    }
  }

  private static void pause(long ns, FenceguardException fault) {
    try {
      TimeUnit.NANOSECONDS.sleep(ns);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw fault;
    }
  }

  private Lease ask(String resource, Duration ttl, long waitNs, String holder) {
    long waitMs = Math.min(TimeUnit.NANOSECONDS.toMillis(waitNs), WAIT_MAX.toMillis());
    // Not String.format(), which writes numbers with the digits of the default locale.
    String wish = "{\"resource\":" + quoted(resource) + ",\"ttl_ms\":" + ttl.toMillis() + ",\"wait_ms\":" + waitMs
        + ",\"holder\":\"" + holder + "\"}";
    long sentAt = Clock.now();
    HttpResponse<byte[]> answer = control("POST", null, resource, Map.of(), wish, ANSWER_MAX.plusMillis(waitMs));
    Lease lease = new Lease(this, resource, Call.lease(answer), ttl, sentAt);
    if (answer.statusCode() == 200 || Clock.now() - sentAt > ttl.toNanos() / 3) {
      try {
        lease.renew();
      } catch (FenceguardException fault) {
        // What is known of the term stands.
      }
    }
    return lease;
  }

  /** A claim that was granted elsewhere, such as to 'fenceguard exec': it is not renewed, and never expires. */
  public Lease adopt(String resource, long token, String holder) {
    return new Lease(this, resource, Map.of("token", Long.toString(token), "holder", holder), null, 0);
  }

  /** A plain read, without a claim. */
  public Optional<byte[]> read(String resource) {
    return read(resource, Map.of());
  }

  Optional<byte[]> read(String resource, Map<String, String> claim) {
    HttpResponse<byte[]> answer = data("GET", resource, claim, new byte[0]);
    return answer.statusCode() == 404 ? Optional.empty() : Optional.of(answer.body());
  }

  /** Runs body under the lock, and again under a new grant after Stale or Conflict, up to attempts grants in all. */
  public <T> T run(String resource, Duration ttl, Duration wait, int attempts, Body<T> body) throws Exception {
    for (int attempt = 1;; attempt++) {
      try (Lease lease = acquire(resource, ttl, wait)) {
        return body.run(lease);
      } catch (Refused refused) {
        if (attempt >= attempts) throw refused;
      }
    }
  }

  HttpResponse<byte[]> data(String method, String resource, Map<String, String> fields, byte[] body) {
    return new Call(true, method, data.resolve("/" + encoded(resource)), fields, resource, timeout).send(http, body);
  }

  /** path: null for the collection. */
  HttpResponse<byte[]> control(
      String method, String path, String resource, Map<String, String> claim, String json, Duration limit) {
    Map<String, String> fields = new TreeMap<>(claim);
    if (bearer != null) fields.put("Authorization", "Bearer " + bearer);
    if (!json.isEmpty()) fields.put("Content-Type", "application/json");
    URI target = control.resolve("/v1/leases" + (path == null ? "" : "/" + encoded(path)));
    return new Call(false, method, target, fields, resource, limit).send(http, json.getBytes(UTF_8));
  }

  private static String encoded(String resource) {
    StringBuilder out = new StringBuilder();
    for (byte octet : resource.getBytes(UTF_8)) {
      boolean isPlain = octet > 0 && (Character.isLetterOrDigit(octet) || "-._~/".indexOf(octet) >= 0);
      out.append(isPlain ? String.valueOf((char) octet) : String.format(Locale.ROOT, "%%%02X", octet));
    }
    return out.toString();
  }

  private static String quoted(String text) {
    StringBuilder out = new StringBuilder("\"");
    text.chars().forEach(c -> out.append(c < ' ' || c == '"' || c == '\\' ? String.format(Locale.ROOT, "\\u%04x", c) : (char) c + ""));
    return out.append('"').toString();
  }
}
