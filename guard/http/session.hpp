#pragma once

// Session: one connection. Reads a request, has it answered, writes the answer, and again, in that order, so
// that pipelined requests are answered in turn. Keeps the limits and the deadlines, each of which is for the
// whole of a phase. Its coroutine owns it.
//
// Thread safety: the loop's thread only.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "guard/http/exchange.hpp"
#include "guard/http/loop.hpp"
#include "guard/http/net.hpp"
#include "guard/http/read_buffer.hpp"
#include "guard/http/request_reader.hpp"
#include "guard/http/response_writer.hpp"
#include "guard/http/server.hpp"
#include "guard/http/wakeup.hpp"

namespace fenceguard::http {

// What all connections of one listener share.
struct Service {
  Handler& handler;
  Limits limits;
  bool is_local = false;  // a Unix socket
  Census& census;
  std::atomic<std::int64_t> connections{0};
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Loop& loop, Socket socket, std::shared_ptr<Service> service);

  // Serves the connection to its end.
  void start();

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

  // From the loop.
  [[nodiscard]] SteadyTime deadline() const noexcept { return deadline_; }
  void expire(SteadyTime now);
  void begin_drain();
  void cut();
  static constexpr std::size_t nowhere = ~std::size_t{0};
  std::size_t place_in_loop = nowhere;

 private:
  enum class Arrival { ready, ended, late, malformed, too_large };
  using MaybeRefusal = std::optional<Refusal>;

  Task<void> run();
  // One request and its answer. False: the connection ends.
  Task<bool> serve_request();
  Task<Arrival> await_head(HeadScanner& scanner);
  Task<MaybeRefusal> read_body(RequestReader& reader);
  Task<MaybeRefusal> read_sized_body(RequestReader& reader);
  Task<MaybeRefusal> read_chunked_body(RequestReader& reader);
  Task<Arrival> fill_buffer();
  // Sends answer_.
  Task<bool> respond();
  Task<bool> respond_refusal(Refusal refusal);
  Task<bool> send_rest(std::string_view head, std::string_view body);
  Task<void> linger();
  Task<void> stop_watching();
  Task<void> watch_peer(std::uint64_t number);

  void dispatch(Request request);
  // Takes a body that came together with its header block. False if more must be read.
  [[nodiscard]] bool take_buffered_body(RequestReader& reader);
  // What came while the wait for a request was being ended.
  [[nodiscard]] bool read_at_once();
  [[nodiscard]] std::optional<Response> preview(const Request& head) noexcept;
  [[nodiscard]] Response refusal_response(Refusal refusal) noexcept;
  [[nodiscard]] Arrival arrival_of(const boost::system::error_code& error) const noexcept;
  [[nodiscard]] bool is_peer_gone();
  // Sends what the socket takes at once, and takes it off head and body. False if the connection is broken.
  [[nodiscard]] bool send_now(std::string_view& head, std::string_view& body);
  void set_deadline(std::chrono::milliseconds duration);
  void finish();

  Loop& loop_;
  Socket socket_;
  const std::shared_ptr<Service> service_;
  ReadBuffer buffer_;
  std::string out_;
  std::optional<Response> answer_;
  std::weak_ptr<Exchange> exchange_;
  Wakeup wakeup_;
  SteadyTime deadline_ = SteadyTime::max();

  // The present request. It and its answer are here and not in the coroutines, because large frames are dear:
  // Asio uses them again below 1,020 bytes only.
  std::optional<RequestReader> reader_;
  std::uint64_t number_ = 0;
  bool is_head_ = false;
  bool is_http_1_0_ = false;
  bool keeps_alive_ = false;     // as the client asked for
  bool is_unread_ = false;       // its body may still be coming, and nobody reads it
  bool is_dispatching_ = false;  // the handler has been called and has not returned
  bool is_waiting_ = false;      // for the answer

  // The connection.
  bool is_idle_ = false;  // waits for the first byte of a request
  bool is_late_ = false;  // the deadline has passed
  bool is_watching_ = false;
  bool is_peer_gone_ = false;
  bool is_lingering_ = false;  // ends by our decision: the client may still be sending
  bool is_cut_ = false;
};

}  // namespace fenceguard::http
