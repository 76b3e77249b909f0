#pragma once

// What the tests of the HTTP server share: a client that sends exactly the bytes it is told to, and
// handlers.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/server.hpp"
#include "server/http/stream.hpp"
#include "server/http/wire/message.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/process/eventually.hpp"

namespace fenceguard::http {

using namespace std::chrono_literals;

// Far beyond what anything takes, also under a sanitizer on a busy machine.
inline constexpr auto patience = 30s;

using test::eventually;

// An answer as it came over the wire.
struct Answer {
  unsigned status = 0;
  std::string head;  // as sent
  std::string body;

  // The value of a field, or nothing.
  [[nodiscard]] std::optional<std::string> field(std::string_view name) const;
};

// A TCP or Unix connection on which the test writes bytes. Reads wait for at most patience and throw then.
class RawClient {
 public:
  explicit RawClient(const std::string& address);
  ~RawClient();
  RawClient(RawClient&& other) noexcept;
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // Sends all of bytes; false if the server does not take them.
  bool send(std::string_view bytes);
  // The next answer. without_body: to a HEAD. Throws if the connection ended before it was whole.
  [[nodiscard]] Answer receive(bool without_body = false);
  // What comes until the server closes, whether in order or by a reset.
  [[nodiscard]] std::string receive_to_end();
  // Reads up to bytes and drops them; how many. 0: the end.
  [[nodiscard]] std::size_t take(std::size_t bytes);
  [[nodiscard]] bool is_closed_by_server() { return receive_to_end().empty(); }
  // The connection ended with a reset, not in order.
  [[nodiscard]] bool was_reset() const noexcept { return was_reset_; }
  // Nothing has come so far.
  [[nodiscard]] bool is_quiet();

  void shutdown_send();
  // Closes with a reset.
  void reset();
  void close();

 private:
  // False at the end.
  bool receive_some();

  int socket_ = -1;
  std::string received_;
  bool was_reset_ = false;
};

// Answers every request at once: 200 with 'METHOD TARGET BODY', no body for HEAD but its length.
class EchoHandler : public Handler {
 public:
  void handle(Request request, std::shared_ptr<Caller> caller, Reply reply) override;
  [[nodiscard]] Response refuse(unsigned status, std::string_view why) override;
};

// Keeps requests until the test answers them.
class HoldingHandler : public EchoHandler {
 public:
  struct Held {
    Request request;
    std::shared_ptr<Caller> caller;
    Reply reply;
  };

  void handle(Request request, std::shared_ptr<Caller> caller, Reply reply) override;
  // The oldest request that is held; waits for it. Throws at the limit.
  [[nodiscard]] Held take();

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Held> held_;
};

[[nodiscard]] Response text_response(std::string body);

// Answers as EchoHandler does, as a stream.
class EchoStreams : public StreamHandler {
 public:
  [[nodiscard]] Task<void> serve(Stream& stream) override;
  [[nodiscard]] Response refuse(unsigned status, std::string_view why) override;
};

// Serves each request with what the test has put there.
class ScriptedStreams : public EchoStreams {
 public:
  std::function<Task<void>(Stream&)> script;
  [[nodiscard]] Task<void> serve(Stream& stream) override {
    return script ? script(stream) : EchoStreams::serve(stream);
  }
};

// Waits until condition holds, on a loop.
[[nodiscard]] Task<void> loop_until(std::function<bool()> condition);

// All of the body, in pieces.
[[nodiscard]] Task<Piece> read_all(Stream& stream, std::string& body);

}  // namespace fenceguard::http
