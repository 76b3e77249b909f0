#pragma once

// HTTP messages as plain values, and the seam between what moves bytes (server.hpp) and what decides (the
// sidecar's data side and control side): request in, response out, no socket. Rulings and routing are tested
// without one.

#include <any>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fenceguard::http {

// Header fields in the order in which they came; names compare without regard to case.
class Fields {
 public:
  void add(std::string name, std::string value) { fields_.emplace_back(std::move(name), std::move(value)); }

  void reserve(std::size_t fields) { fields_.reserve(fields); }

  // The value of the only field with this name; nothing if there is none or more than one.
  [[nodiscard]] std::optional<std::string_view> single(std::string_view name) const;
  [[nodiscard]] std::size_t count(std::string_view name) const;
  [[nodiscard]] bool contains(std::string_view name) const { return count(name) > 0; }

  [[nodiscard]] auto begin() const { return fields_.begin(); }
  [[nodiscard]] auto end() const { return fields_.end(); }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

struct Request {
  std::string method;
  std::string target;  // as sent: still percent-encoded, with its query
  Fields fields;
  std::string body;
  bool local_socket = false;  // came over a Unix socket
  std::string client{};       // whose connection it is, for the log: an address without port, or 'unix'
  std::any head{};            // what Handler::preview() made of the head
};

// A body that goes on: what there is to tell is asked for again and again, until the client goes away or the
// server stops. A client that does not take it in time is cut, so that no more than one piece is ever kept.
class Feed {
 public:
  virtual ~Feed() = default;
  // Appends what there is to tell by now, some tens of KiB at most. False: that was the end. Called on the
  // connection's thread, several times a second. Must not block.
  [[nodiscard]] virtual bool read(std::string& out) = 0;
};

struct Response {
  unsigned status = 200;
  Fields fields;  // without Content-Length, Connection and Date, which the server writes
  std::string body;
  bool close = false;  // the connection ends after this answer
  // For the answer to HEAD: what Content-Length says although no body is sent.
  std::optional<std::size_t> head_length{};
  // Called, on the connection's thread, if the answer could not be handed to the client: it was gone, or the
  // write failed. For what must be taken back then, such as a lease.
  std::function<void()> undelivered{};
  std::shared_ptr<Feed> feed{};  // in place of a body
};

// The client of a request that is still being answered.
class Caller {
 public:
  virtual ~Caller() = default;
  // Has gone called, once, if the client goes away before it is answered; it may be called on another thread,
  // and even during this call. A client that closes its sending side counts as gone, because nothing tells
  // the two apart. With the answer gone is forgotten; whether the answer arrived is for 'undelivered' to
  // tell.
  virtual void watch(std::function<void()> gone) = 0;
};

// Answers a request. Called exactly once, from any thread.
using Reply = std::function<void(Response)>;

// What decides. One handler serves all connections of a listener; calls come from all its threads.
class Handler {
 public:
  virtual ~Handler() = default;

  // Looks at a request before its body is read; a response ends it without reading the body (and the
  // connection with it, if a body was announced). The request's body is empty here. What it leaves in
  // request.head comes with the request to handle().
  [[nodiscard]] virtual std::optional<Response> preview(Request& /*request*/) { return std::nullopt; }

  // Called once preview() has let the request pass. Must not block.
  virtual void handle(Request request, std::shared_ptr<Caller> caller, Reply reply) = 0;

  // The answer to what never became a request: 400 malformed, 408 too slow, 413 body too large, 417 an
  // expectation that is not met, 431 header block too large; and to one that the handler threw at or forgot:
  // 500.
  [[nodiscard]] virtual Response refuse(unsigned status, std::string_view why) = 0;
};

}  // namespace fenceguard::http
