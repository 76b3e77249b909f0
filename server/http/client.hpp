#pragma once

// Client: one HTTP/1.1 connection that blocks, for the command line, the demonstration and tests. Reconnects
// by itself before a request if the connection was closed in between; never repeats a request that was begun.
//
// Not thread-safe.

#include <chrono>
#include <memory>
#include <string>

#include "server/http/wire/message.hpp"

namespace fenceguard::http {

class Client {
 public:
  // server: http://HOST:PORT or unix:/path. Throws InvalidInput for anything else. Nothing is connected yet.
  explicit Client(const std::string& server,
                  std::chrono::milliseconds timeout = std::chrono::milliseconds{30'000});
  ~Client();
  Client(Client&&) noexcept;

  // Fields sent with every request, for example Authorization.
  void add_default(std::string name, std::string value);
  // Takes no longer bodies of answers from now on: they count as not whole. Without it, any.
  void limit_body(std::size_t bytes_max);

  // Sends request (its target percent-encoded by the caller) and waits for the answer, at most timeout.
  // Throws Unavailable if nothing was sent (no connection), OutcomeUnknown if the answer did not come whole.
  [[nodiscard]] Response send(const Request& request);
  [[nodiscard]] Response send(const Request& request, std::chrono::milliseconds timeout);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fenceguard::http
