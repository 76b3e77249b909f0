import static java.nio.charset.StandardCharsets.UTF_8;

import io.github.fenceguard.Client;
import io.github.fenceguard.FenceguardException;
import io.github.fenceguard.Lease;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The driver of clients/README.md over the Java client. */
public final class Driver {
  private static final Pattern MEMBER = Pattern.compile("\"(\\w+)\":\\s*(?:\"((?:[^\"\\\\]|\\\\.)*)\"|([\\w-]+))");

  private final BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, UTF_8));
  private final Map<String, Lease> leases = new HashMap<>();
  private Client client;

  public static void main(String[] arguments) throws IOException {
    new Driver().answerAll();
  }

  private void answerAll() throws IOException {
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      try {
        say(answer(members(line)));
      } catch (FenceguardException error) {
        say(told(error));
      } catch (Exception error) { // what is none of the outcomes fails the scenario
        say(outcome("error", "detail", error));
      }
    }
  }

  private Map<String, Object> answer(Map<String, String> command) throws Exception {
    String name = command.getOrDefault("lease", "main");
    Lease lease = leases.get(name);
    String resource = command.get("resource");
    switch (command.get("do")) {
      case "client" -> {
        client = new Client(URI.create(command.get("data")), URI.create(command.get("control")), command.get("bearer"));
        if (command.containsKey("timeout_ms")) client = client.withTimeout(ms(command, "timeout_ms"));
        return outcome("ok", "timeout_ms", client.timeout().toMillis());
      }
      case "acquire" -> {
        boolean isRenewed = !"false".equals(command.get("renew"));
        Lease granted = client.acquire(resource, ms(command, "ttl_ms"), ms(command, "wait_ms"), isRenewed);
        leases.put(name, granted);
        return outcome("granted", "token", granted.token() + "", "holder", granted.holder());
      }
      case "adopt" -> {
        leases.put(name, client.adopt(resource, Long.parseLong(command.get("token")), command.get("holder")));
        return outcome("ok");
      }
      case "renew" -> lease.renew();
      case "lost" -> {
        return outcome("ok", "lost", lease.isLost());
      }
      case "wait_lost" -> {
        Optional<Lease.End> end = lease.awaitLost(ms(command, "limit_ms"));
        return end.isEmpty() ? outcome("timeout") : outcome("lost", "reason", end.get().name().toLowerCase(Locale.ROOT));
      }
      case "write" -> {
        String sequence = command.get("sequence");
        OptionalLong number = sequence == null ? OptionalLong.empty() : OptionalLong.of(Long.parseLong(sequence));
        return outcome(lease.write(command.get("body").getBytes(UTF_8), number).name().toLowerCase(Locale.ROOT));
      }
      case "delete" -> {
        return outcome(lease.delete().name().toLowerCase(Locale.ROOT));
      }
      case "read" -> {
        return object(lease.read());
      }
      case "plain_read" -> {
        return object(client.read(resource));
      }
      case "release" -> lease.release();
      case "run" -> {
        return run(command);
      }
      default -> throw new IllegalArgumentException(command.get("do"));
    }
    return outcome(command.get("do").equals("renew") ? "renewed" : "released");
  }

  private Map<String, Object> run(Map<String, String> command) throws Exception {
    AtomicInteger grants = new AtomicInteger();
    int value = client.run(command.get("resource"), ms(command, "ttl_ms"), ms(command, "wait_ms"),
        Integer.parseInt(command.get("attempts")), lease -> {
          int before = lease.read().map(body -> Integer.parseInt(new String(body, UTF_8))).orElse(0);
          if (grants.incrementAndGet() == 1 && "true".equals(command.get("pause"))) {
            say(Map.of("event", "paused"));
            commands.readLine();
          }
          int sum = before + Integer.parseInt(command.get("add"));
          lease.write(Integer.toString(sum));
          return sum;
        });
    return outcome("done", "value", value, "attempts", grants.get());
  }

  private static Map<String, Object> object(Optional<byte[]> body) {
    return outcome("admitted", "body", body.map(bytes -> new String(bytes, UTF_8)).orElse(null));
  }

  private static Map<String, Object> told(FenceguardException error) {
    Map<String, Object> answer = outcome(error.getClass().getSimpleName().toLowerCase(Locale.ROOT), "detail", error.getMessage());
    if (error.token > 0) answer.put("token", error.token + "");
    if (error.highest > 0) answer.put("highest", error.highest + "");
    if (error.retryAfter != null) answer.put("retry_after_ms", error.retryAfter.toMillis());
    if (error instanceof FenceguardException.Lost) answer.put("reason", "ended");
    answer.put("problem", error.problem);
    answer.put("found", error.found);
    return answer;
  }

  private static Duration ms(Map<String, String> command, String member) {
    return Duration.ofMillis(Long.parseLong(command.getOrDefault(member, "0")));
  }

  private static Map<String, Object> outcome(String word, Object... members) {
    Map<String, Object> answer = new LinkedHashMap<>(Map.of("outcome", word));
    for (int i = 0; i < members.length; i += 2) answer.put((String) members[i], members[i + 1]);
    return answer;
  }

  private static void say(Map<String, Object> answer) {
    StringBuilder line = new StringBuilder();
    answer.forEach((name, value) -> {
      line.append(line.isEmpty() ? "{" : ",").append(quoted(name)).append(':');
      boolean isBare = value == null || value instanceof Number || value instanceof Boolean;
      line.append(isBare ? String.valueOf(value) : quoted(value.toString()));
    });
    System.out.println(line.append('}'));
  }

  private static String quoted(String text) {
    StringBuilder out = new StringBuilder("\"");
    text.chars().forEach(c -> out.append(c < ' ' || c == '"' || c == '\\' || c > 126 ? String.format(Locale.ROOT, "\\u%04x", c) : (char) c + ""));
    return out.append('"').toString();
  }

  private static Map<String, String> members(String line) {
    Map<String, String> members = new HashMap<>();
    Matcher found = MEMBER.matcher(line);
    while (found.find()) members.put(found.group(1), found.group(2) == null ? found.group(3) : text(found.group(2)));
    return members;
  }

  private static String text(String escaped) {
    Matcher found = Pattern.compile("\\\\(?:u([0-9a-fA-F]{4})|(.))").matcher(escaped);
    return found.replaceAll(escape -> Matcher.quoteReplacement(escape.group(1) != null
        ? String.valueOf((char) Integer.parseInt(escape.group(1), 16))
        : "bfnrt".contains(escape.group(2)) ? "\b\f\n\r\t".charAt("bfnrt".indexOf(escape.group(2))) + "" : escape.group(2)));
  }
}
