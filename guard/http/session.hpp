#pragma once

// Session: one connection. Reads a request, has it answered, writes the answer, and again, in that order, so
// that pipelined requests are answered in turn. Keeps the limits and the deadlines, each of which is for the
// whole of a phase. What the two kinds of handler differ in is who reads the body. Its coroutine owns it.
//
// Thread safety: the loop's thread only.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "guard/http/body_reader.hpp"
#include "guard/http/connection.hpp"
#include "guard/http/exchange.hpp"
#include "guard/http/loop.hpp"
#include "guard/http/net.hpp"
#include "guard/http/request_reader.hpp"
#include "guard/http/response_writer.hpp"
#include "guard/http/server.hpp"
#include "guard/http/session_stream.hpp"

namespace fenceguard::http {

// What all connections of one listener share.
struct Service {
  Handler* handler;  // one of the two
  StreamHandler* streams;
  Limits limits;
  std::shared_ptr<const TlsContext> tls;  // null: in the clear
  bool is_local = false;                  // a Unix socket
  Census& census;
  std::atomic<std::int64_t> connections{0};

  [[nodiscard]] Response refuse(Refusal refusal) const {
    return streams ? streams->refuse(refusal.status, refusal.why)
                   : handler->refuse(refusal.status, refusal.why);
  }
};

class Session : public std::enable_shared_from_this<Session>, public WaitHook {
 public:
  Session(Loop& loop, Socket socket, std::shared_ptr<Service> service);

  // Serves the connection to its end.
  void start();
  // Closes it, in place of start().
  void decline() { finish(); }

  // From the exchange. number tells a late call for an earlier request from one for the present.
  [[nodiscard]] bool is_waiting(std::uint64_t number) const noexcept {
    return is_waiting_ && number == number_;
  }
  [[nodiscard]] bool is_dispatching(std::uint64_t number) const noexcept {
    return is_dispatching_ && is_waiting(number);
  }
  void take_answer(Response& response);
  void take_failure(std::uint64_t number, std::string_view why);
  void watch(std::uint64_t number);

  // From the stream.
  [[nodiscard]] Connection& connection() noexcept { return connection_; }
  [[nodiscard]] BodyReader& body() noexcept { return body_; }
  [[nodiscard]] RequestReader& head() noexcept { return *reader_; }
  [[nodiscard]] const Service& service() const noexcept { return *service_; }
  [[nodiscard]] const std::string& peer() const noexcept { return peer_; }
  [[nodiscard]] Response refusal_response(Refusal refusal) noexcept;
  // Sends an answer that is whole. False if it could not be handed to the client.
  [[nodiscard]] Task<bool> respond(Response response);
  // How the present answer is framed; closes: says that it is the last.
  [[nodiscard]] Framing frame(bool closes);
  [[nodiscard]] std::string& out() noexcept { return out_; }
  // The answer has been sent, or could not be.
  void end_answer(bool is_sent) noexcept;

  // From the loop.
  [[nodiscard]] SteadyTime deadline() const noexcept { return connection_.deadline(); }
  void expire(SteadyTime now) { connection_.expire(now); }
  void begin_drain();
  void cut();
  // Its place is wanted by another.
  void end_waiting();
  static constexpr std::size_t nowhere = ~std::size_t{0};
  std::size_t place_in_loop = nowhere;

 private:
  using Arrival = Connection::Arrival;

  Task<void> run();
  Task<bool> shake_hands();
  // One request and its answer. False: the connection ends.
  Task<bool> serve_request();
  Task<bool> serve_stream();
  // Why no head came; a status of 0: no answer is due.
  Task<std::optional<Refusal>> await_head(HeadScanner& scanner);
  void begin_waiting();
  void stop_waiting();
  Task<std::optional<Refusal>> read_body();
  Task<bool> respond_refusal(Refusal refusal);
  // The buffered handler's answer, or a failure.
  void dispatch(Request request);
  [[nodiscard]] std::optional<Response> preview(const Request& head) noexcept;
  void finish();

  const std::shared_ptr<Service> service_;
  Connection connection_;
  BodyReader body_;
  std::string peer_;
  std::string out_;

  // The present request. It and its answer are here and not in the coroutines, because large frames are dear:
  // Asio uses them again below 1,020 bytes only.
  std::optional<RequestReader> reader_;
  std::optional<SessionStream> stream_;
  std::optional<Response> answer_;
  std::weak_ptr<Exchange> exchange_;
  std::uint64_t number_ = 0;
  bool is_head_ = false;
  bool is_http_1_0_ = false;
  bool keeps_alive_ = false;     // as the client asked for
  bool is_closing_ = false;      // the present answer says that it is the last
  bool is_dispatching_ = false;  // the handler has been called and has not returned
  bool is_waiting_ = false;      // for the answer

  // The connection.
  bool goes_on_ = false;
  bool is_idle_ = false;       // waits for the first byte of a request
  bool is_ending_ = false;     // serves at most what has come
  bool is_lingering_ = false;  // ends by our decision: the client may still be sending
};

}  // namespace fenceguard::http
