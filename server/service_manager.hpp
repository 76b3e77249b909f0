#pragma once

// ServiceManager: tells the process that started this one, such as systemd, how far it is: sd_notify(3). One
// datagram each to the socket that $NOTIFY_SOCKET names; where none is named every call does nothing.
//
// The protocol is stable, and its manual page asks programs that need nothing else of libsystemd to speak it
// themselves: the library would load three compressors into the guard.
//
// Thread-safe. A datagram that cannot be sent is logged; the guard goes on.

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace fenceguard {

class ServiceManager {
 public:
  // Reads the environment: before any other thread.
  ServiceManager();

  // status: one line for people, as 'systemctl status' shows it.
  void ready(std::string_view status) const;
  void reloading() const;
  // It may take for so long before it has stopped.
  void stopping(std::chrono::milliseconds longest) const;
  // It is not ready yet, and may take for so long again.
  void waiting(std::string_view status, std::chrono::milliseconds longest) const;

  // How often keep_alive() is wanted at least; nothing where it is not.
  [[nodiscard]] std::optional<std::chrono::milliseconds> watchdog() const noexcept { return watchdog_; }
  void keep_alive() const;

 private:
  void send(std::string_view message) const;

  std::string socket_;  // empty: none
  std::optional<std::chrono::milliseconds> watchdog_;
};

}  // namespace fenceguard
