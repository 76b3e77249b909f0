package io.github.fenceguard;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/** A clock for the terms of leases. Java's own stands still while the machine sleeps; on Linux that time is added. */
final class Clock {
  private static final Path UPTIME = Path.of("/proc/uptime");
  private static final long UPTIME_ERROR_NS = TimeUnit.MILLISECONDS.toNanos(100); // it is told in hundredths of a second
  private static final long AHEAD = uptime(0) - System.nanoTime();
  private static long slept;

  private Clock() {}

  /** Nanoseconds since some moment. */
  static synchronized long now() {
    long asleep = uptime(AHEAD + System.nanoTime()) - System.nanoTime() - AHEAD;
    if (asleep - slept > UPTIME_ERROR_NS) slept = asleep;
    return System.nanoTime() + slept;
  }

  /** Of the machine, the time that it slept included; otherwise where it cannot be told. */
  private static long uptime(long otherwise) {
    try {
      return (long) (Double.parseDouble(Files.readString(UPTIME).split(" ")[0]) * 1e9);
    } catch (IOException | RuntimeException none) {
      return otherwise;
    }
  }
}
