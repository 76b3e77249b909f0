package io.github.fenceguard;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.github.fenceguard.FenceguardException.Facts;
import java.io.IOException;
import java.net.ConnectException;
import java.net.ProtocolException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * One request to a guard, and what its answer means: the table 'From an answer to an outcome' of clients/README.md, row by
 * row. The HTTP client repeats a GET whose kept connection had ended, and nothing else.
 */
record Call(boolean isData, String method, URI target, Map<String, String> fields, String resource, Duration limit) {
  private static final String PROBLEM = "urn:fenceguard:problem:";
  private static final Pattern MEMBER = Pattern.compile("\"(\\w+)\"\\s*:\\s*(?:\"((?:[^\"\\\\]|\\\\.)*)\"|([0-9]+))");

  boolean isRead() {
    return method.equals("GET");
  }

  /** Without the fields, which hold a claim and the bearer token. */
  @Override
  public String toString() {
    return method + " " + resource;
  }

  /** Sends it once; a read a second time where no whole answer came. Throws what it ends with but success. */
  HttpResponse<byte[]> send(HttpClient http, byte[] body) {
    HttpResponse<byte[]> answer;
    try {
      answer = exchange(http, body);
    } catch (FenceguardException.Unknown fault) {
      if (!isRead()) throw fault;
      try {
        answer = exchange(http, body);
      } catch (FenceguardException.Unknown again) {
        throw ending("unavailable", again.getMessage(), Facts.NONE);
      }
    }
    new Judgement(answer).judge();
    return answer;
  }

  private HttpResponse<byte[]> exchange(HttpClient http, byte[] body) {
    HttpRequest.Builder request = HttpRequest.newBuilder(target).method(method, BodyPublishers.ofByteArray(body));
    fields.forEach(request::header);
    CompletableFuture<HttpResponse<byte[]>> answer = http.sendAsync(request.build(), BodyHandlers.ofByteArray());
    try {
      return answer.get(Math.max(1, limit.toMillis()), TimeUnit.MILLISECONDS);
    } catch (TimeoutException late) {
      answer.cancel(true);
      throw ending("unknown", "no whole answer in time", Facts.NONE);
    } catch (InterruptedException interrupted) {
      answer.cancel(true);
      Thread.currentThread().interrupt();
      throw ending("unknown", "interrupted before its answer came", Facts.NONE);
    } catch (ExecutionException failed) {
      throw fault(failed.getCause());
    }
  }

  private FenceguardException fault(Throwable cause) {
    if (cause instanceof ConnectException || cause instanceof HttpConnectTimeoutException) {
      return ending("unavailable", "no connection to " + target.getAuthority(), Facts.NONE);
    }
    if (cause instanceof ProtocolException) return ending("other", "what answers speaks no HTTP", Facts.NONE);
    if (cause instanceof IOException) return ending("unknown", "no whole answer: " + cause.getMessage(), Facts.NONE);
    throw new IllegalStateException(cause);
  }

  private FenceguardException ending(String outcome, String why, Facts facts) {
    String what = method + " " + resource + ": " + why;
    return switch (outcome) {
      case "stale" -> new FenceguardException.Stale(what, facts);
      case "conflict" -> new FenceguardException.Conflict(what, facts);
      case "held" -> new FenceguardException.Held(what, facts);
      case "lost" -> new FenceguardException.Lost(what, facts);
      case "unavailable" -> new FenceguardException.Unavailable(what, facts);
      case "unknown" -> new FenceguardException.Unknown(what, facts);
      case "unauthorized" -> new FenceguardException.Unauthorized(what, facts);
      case "rejected" -> new FenceguardException.Rejected(what, facts);
      default -> new FenceguardException.Misdirected(what, new Facts(0, 0, null, facts.problem(), facts.status(), outcome));
    };
  }

  static String verdict(HttpResponse<byte[]> answer) {
    return answer.headers().firstValue("Fencing-Verdict").orElse("");
  }

  /** The members of the lease in an answer; empty where there is none. */
  static Map<String, String> lease(HttpResponse<byte[]> answer) {
    Map<String, String> lease = members(answer);
    boolean isLease = lease.getOrDefault("token", "").matches("[0-9]{1,19}") && lease.containsKey("holder");
    return isLease ? lease : Map.of();
  }

  /** The texts and numbers of a flat JSON object. */
  private static Map<String, String> members(HttpResponse<byte[]> answer) {
    Map<String, String> members = new HashMap<>();
    Matcher found = MEMBER.matcher(new String(answer.body(), UTF_8));
    while (found.find()) {
      String text = found.group(2) == null ? found.group(3) : found.group(2).replaceAll("\\\\([\"\\\\/])", "$1");
      members.putIfAbsent(found.group(1), text);
    }
    return members;
  }

  /** The first row that fits. Its word: an outcome, the side that is misdirected to, or nothing for success. */
  private final class Judgement {
    private final HttpResponse<byte[]> answer;
    private final int status;
    private final String verdict;
    private final Map<String, String> members; // of a problem
    private final String problem;

    Judgement(HttpResponse<byte[]> answered) {
      answer = answered;
      status = answered.statusCode();
      verdict = verdict(answered);
      boolean isProblem = answered.headers().firstValue("Content-Type").orElse("").contains("application/problem+json");
      members = isProblem ? members(answered) : Map.of();
      String type = members.getOrDefault("type", "");
      problem = type.startsWith(PROBLEM) ? type.substring(PROBLEM.length()) : "";
    }

    void judge() {
      String word = isData ? ofData() : ofControl();
      if (word.isEmpty()) return;
      String after = answer.headers().firstValue("Retry-After").orElse("");
      Duration retryAfter = after.matches("[0-9]{1,9}") ? Duration.ofSeconds(Long.parseLong(after)) : null;
      throw ending(word, status + " " + members.getOrDefault("detail", ""), new Facts(number("token"), number("highest"),
          retryAfter, problem.isEmpty() ? null : problem, status, null));
    }

    private String ofData() {
      if (verdict.isEmpty() && problem.isEmpty()) {
        if (status >= 500) return isRead() ? "unavailable" : "unknown";
        return !fields.containsKey("Fencing-Token") && (status < 300 || status == 404) ? "" : "other";
      }
      boolean isNoRoute = problem.equals("not-found") && !members.containsKey("resource");
      if (verdict.isEmpty() && (isNoRoute || problem.matches("unauthorized|forbidden|foreign-origin"))) return "control";
      if (isNamed(verdict)) return verdict;
      if (isNamed(problem)) return problem;
      boolean isDone = status < 300 || (isRead() ? status == 404 : status >= 301 && status <= 303);
      return verdict.equals("duplicate") || isDone ? "" : "rejected";
    }

    private String ofControl() {
      if (verdict.isEmpty() && problem.isEmpty() && status >= 500) return "unknown";
      if (verdict.matches("admitted|missing") || problem.matches("method-not-allowed|missing")
          || problem.equals("not-found") && method.equals("POST")) return "data";
      if (isNamed(problem)) return problem;
      if (!problem.isEmpty()) return problem.matches("unauthorized|forbidden") ? "unauthorized" : "rejected";
      boolean isDone = method.equals("DELETE") ? status == 204 : status <= 201 && !lease(answer).isEmpty();
      return isDone ? "" : "other";
    }

    private boolean isNamed(String word) {
      return word.matches("stale|conflict|held|lost|unavailable|unknown");
    }

    private long number(String member) {
      String digits = members.getOrDefault(member, "");
      return digits.matches("[0-9]{1,19}") ? Long.parseLong(digits) : 0;
    }
  }
}
