#pragma once

// Session: one connection. Reads a request, has it answered, writes the answer, and again, in that order, so
// that pipelined requests are answered in turn. Keeps the limits and the deadlines, each of which is for the
// whole of a phase. The two kinds of handler differ in which of the two reads the body, session or handler.
// Its coroutine owns it.
//
// Thread safety: the loop's thread only.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/limits.hpp"
#include "server/http/net.hpp"
#include "server/http/pending_request.hpp"
#include "server/http/session_fast.hpp"
#include "server/http/stream.hpp"
#include "server/http/wire/body_reader.hpp"
#include "server/http/wire/request_reader.hpp"
#include "server/http/wire/response_writer.hpp"
#include "server/net/connection.hpp"
#include "server/net/loop.hpp"
#include "server/net/session.hpp"

namespace fenceguard::http {

// What all connections of one listener share.
class Service : public net::Service, public std::enable_shared_from_this<Service> {
 public:
  Service(Handler* handler_, StreamHandler* streams_, const Limits& limits_,
          std::shared_ptr<const TlsContext> tls_, bool is_local_, net::ConnectionCounter& counter_)
      : net::Service{counter_, limits_.connections_max},
        handler{handler_},
        streams{streams_},
        limits{limits_},
        tls{std::move(tls_)},
        is_local{is_local_} {}

  [[nodiscard]] std::shared_ptr<net::Session> make_session(net::Loop& loop, net::Socket socket) override;
  [[nodiscard]] Response refuse(Rejection refusal) const {
    return streams ? streams->refuse(refusal.status, refusal.why)
                   : handler->refuse(refusal.status, refusal.why);
  }

  Handler* const handler;  // one of the two
  StreamHandler* const streams;
  const Limits limits;
  const std::shared_ptr<const TlsContext> tls;  // null: in the clear
  const bool is_local;                          // a Unix socket
};

class Session;

// The present request of a session, as a StreamHandler sees it: session_stream.cpp.
class SessionStream final : public Stream {
 public:
  explicit SessionStream(Session& session) : session_{session} {}

  [[nodiscard]] const Request& request() const noexcept override;
  [[nodiscard]] bool has_body() const noexcept override;
  [[nodiscard]] std::optional<std::uint64_t> body_bytes() const noexcept override;
  [[nodiscard]] bool expects_continue() const noexcept override;
  [[nodiscard]] bool is_tls() const noexcept override;
  [[nodiscard]] const std::string& peer() const noexcept override;
  [[nodiscard]] Loop& loop() noexcept override;

  [[nodiscard]] bool take_whole_body(std::string& out) override;
  [[nodiscard]] Task<Piece> read_body(std::string& out, std::size_t bytes_max) override;
  void limit_body(std::chrono::milliseconds wait_max, SteadyTime until) override;
  [[nodiscard]] Response refused() const override;

  [[nodiscard]] Task<bool> respond(Response response) override;
  [[nodiscard]] Task<bool> begin(Response head, std::optional<std::uint64_t> body_bytes) override;
  [[nodiscard]] Task<bool> write(std::string_view piece) override;
  [[nodiscard]] Task<bool> finish() override;
  void limit_write(std::chrono::milliseconds write_max) override { write_max_ = write_max; }

  void watch(std::function<void()> gone) override;
  [[nodiscard]] Task<void> stop_watching() override;
  [[nodiscard]] FastExchangePtr take_begun() noexcept override;

  // How far the answer is.
  enum class State { none, begun, ended };
  [[nodiscard]] State state() const noexcept { return state_; }

 private:
  enum class Coding { none, length, chunks, until_close };

  // Sends what is in the session's out buffer, and body behind it.
  [[nodiscard]] Task<bool> send(std::string_view body);
  [[nodiscard]] Coding coding_for(unsigned status, std::optional<std::uint64_t> body_bytes) const noexcept;

  Session& session_;
  State state_ = State::none;
  Coding coding_ = Coding::none;
  std::uint64_t bytes_left_ = 0;  // of a body whose length was announced
  std::optional<std::chrono::milliseconds> write_max_;
  bool owes_chunk_end_ = false;  // the line end of the last chunk goes out with what comes next
};

class Session final : public net::Session, public PendingRequest::Owner, public FastSession::Owner {
 public:
  Session(Loop& loop, Socket socket, std::shared_ptr<Service> service);

  [[nodiscard]] Loop& loop() noexcept override { return connection_.loop(); }
  [[nodiscard]] const Service& service() const noexcept override { return *service_; }
  void start() override;
  void decline() override { finish(); }
  [[nodiscard]] SteadyTime deadline() const noexcept override { return connection_.deadline(); }
  void expire(SteadyTime now) override;
  void begin_drain() override;
  void cut() override;
  void end_waiting() override;

  [[nodiscard]] bool is_waiting(std::uint64_t number) const noexcept override {
    return is_waiting_ && number == number_;
  }
  [[nodiscard]] bool is_dispatching(std::uint64_t number) const noexcept override {
    return is_dispatching_ && is_waiting(number);
  }
  void take_answer(Response& response) override;
  void take_failure(std::uint64_t number, std::string_view why) override;
  void watch(std::uint64_t number) override;

  // From the stream.
  [[nodiscard]] Connection& connection() noexcept override { return connection_; }
  [[nodiscard]] BodyReader& body() noexcept { return body_; }
  [[nodiscard]] bool is_head() const noexcept { return is_head_; }
  [[nodiscard]] bool is_http_1_0() const noexcept { return is_http_1_0_; }
  [[nodiscard]] RequestReader& head() noexcept { return *reader_; }
  [[nodiscard]] const std::string& peer() const noexcept override { return peer_; }
  [[nodiscard]] Response refusal_response(Rejection refusal) noexcept;
  // Sends an answer that is whole. False if it could not be handed to the client.
  [[nodiscard]] Task<bool> respond(Response response);
  // How the present answer is framed; closes: says that it is the last.
  [[nodiscard]] Framing frame(bool closes) override;
  [[nodiscard]] std::string& out() noexcept override { return out_; }
  // The answer has been sent, or could not be.
  void end_answer(bool is_sent) noexcept;

  [[nodiscard]] FastExchangePtr take_begun() noexcept { return fast_.take_begun(); }

  // From the fast path.
  [[nodiscard]] std::shared_ptr<void> keep_alive() override { return shared_from_this(); }
  [[nodiscard]] const Limits& limits() const noexcept override { return service_->limits; }
  [[nodiscard]] StreamHandler* fast_handler() const noexcept override;
  [[nodiscard]] bool is_local() const noexcept override { return service_->is_local; }
  [[nodiscard]] bool is_tls() const noexcept override { return service_->tls != nullptr; }
  [[nodiscard]] bool is_ending() const noexcept override { return is_ending_; }
  void begin_waiting() override;
  void stop_waiting() override;
  void begin_plain(const PlainRequest& request) noexcept override;
  void keep_plain(const PlainRequest& request) override;
  [[nodiscard]] Next next_after_answer(bool is_sent) noexcept override;
  void spawn(bool owes_answer) noexcept override;
  void finish() override;

 private:
  using Arrival = Connection::Arrival;

  Task<void> run();
  Task<bool> shake_hands();
  // One request and its answer. False: the connection ends.
  Task<bool> serve_request();
  Task<bool> serve_stream();
  // The present answer, which has a feed: session_feed.cpp.
  Task<bool> serve_feed();
  // Reads the next head. Why none came; a status of 0: no answer is due.
  Task<std::optional<Rejection>> read_head();
  Task<std::optional<Rejection>> await_head(HeadScanner& scanner);
  Task<void> pay_answer();
  Task<std::optional<Rejection>> read_body();
  Task<bool> respond_refusal(Rejection refusal);
  // The buffered handler's answer, or a failure.
  void dispatch(Request request);
  [[nodiscard]] std::optional<Response> preview(Request& request) noexcept;

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
  std::weak_ptr<PendingRequest> pending_;
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
  bool has_shaken_hands_ = false;
  bool owes_answer_ = false;  // its rest is in out_
  bool has_head_ = false;     // reader_ holds the next request's
  FastSession fast_{*this};
};

}  // namespace fenceguard::http
