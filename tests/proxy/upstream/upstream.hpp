#pragma once

// Upstream: the tests' own web server that knows nothing of tokens, as a child process: see
// tests/kit/upstream.py for what a request can ask of it in the header Upstream-Do, and for its log.
//
// Not thread-safe, but for the reading of its log.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/process/server_process.hpp"
#include "tests/proxy/held_port.hpp"

namespace fenceguard::test {

// A line of the log. What a kind of event does not have is empty.
struct UpstreamEvent {
  std::string kind;  // seen, whole, applied, refused, answered, cut, anomaly
  std::int64_t n = 0;
  double time = 0;  // seconds of CLOCK_MONOTONIC, which is that of steady_clock
  std::int64_t connection = 0;
  std::string method;
  std::string path;
  std::string head;       // of seen: as it came
  std::string body;       // of whole, applied and refused: its first 256 bytes
  std::int64_t size = 0;  // of the whole body
  std::uint32_t crc = 0;  // CRC-32 of the whole body
  std::optional<std::string> token;
  std::optional<std::string> destination;
  unsigned status = 0;
  std::string reason;  // of cut and anomaly
};

// Words by which connections stay with the proxy for a minute; a few seconds else.
inline constexpr const char* keeps_connections = "field=Keep-Alive:timeout=60";

class Upstream {
 public:
  // Starts it. words: what stands for Upstream-Do in a request without it.
  explicit Upstream(const std::string& words = {});
  ~Upstream();
  Upstream(const Upstream&) = delete;
  Upstream& operator=(const Upstream&) = delete;

  [[nodiscard]] int port() const noexcept { return port_.number(); }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port()); }
  [[nodiscard]] std::string url() const { return "http://" + address(); }

  // The events of one kind, or of all, in order; over all of its starts.
  [[nodiscard]] std::vector<UpstreamEvent> events(const std::string& kind = {}) const;
  [[nodiscard]] std::vector<UpstreamEvent> applied() const { return events("applied"); }
  [[nodiscard]] std::vector<UpstreamEvent> seen() const { return events("seen"); }
  [[nodiscard]] std::vector<UpstreamEvent> anomalies() const { return events("anomaly"); }
  // The same once there are count of them. Throws std::runtime_error at the limit.
  [[nodiscard]] std::vector<UpstreamEvent> wait_for(const std::string& kind, std::size_t count = 1) const;

  // On the same port, with the same log and no objects. REQUIRES: it does not run.
  void start();
  // To stop, kill, pause and resume it.
  [[nodiscard]] ServerProcess& process() noexcept { return *process_; }

 private:
  [[nodiscard]] std::string file(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] bool is_up() const;

  const std::string words_;
  std::string folder_;
  const HeldPort port_;
  std::size_t starts_ = 0;
  std::optional<ServerProcess> process_;
};

// Writes to one path of which the later has the lower token, as a sentence each: there must be none.
[[nodiscard]] std::vector<std::string> fallen(
    const std::vector<UpstreamEvent>& applied,
    const std::function<std::int64_t(const UpstreamEvent&)>& token_of = [](const UpstreamEvent& event) {
      return std::stoll(event.token.value());
    });

}  // namespace fenceguard::test
