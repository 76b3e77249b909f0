#pragma once

// UpstreamRequest: one request on its way to the upstream and its answer on the way back. It says what was
// seen of the answer; what that means for a write is not decided here.
//
// Thread safety: the loop's thread only.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/stream.hpp"
#include "server/http/wire/message.hpp"
#include "server/http/wire/request_reader.hpp"
#include "server/proxy/upstream/response_parser.hpp"
#include "server/proxy/upstream/upstream_pool.hpp"

namespace fenceguard::proxy {

// What came of a request, as far as it was seen.
enum class UpstreamOutcome {
  whole,    // the answer is here, to its end
  begun,    // so far its head and a part of its body
  unsent,   // certainly nothing was sent
  silent,   // the connection ended before a byte of an answer
  broken,   // a half or odd answer, or a fault of the connection
  late,     // the deadline passed
  cut_off,  // the client did not send the rest of the body
};

// A request as bytes. What the views show outlives the call.
struct OutgoingRequest {
  std::string_view head;
  std::string_view body;         // in the framing that head announces
  http::Stream* rest = nullptr;  // more body comes from here
  // A later holder waits for this one: body may come for body_max more, and is cut off then.
  std::function<bool()> is_overtaken;
  std::chrono::milliseconds body_max{};
  std::size_t held_bytes_max = 0;  // of the answer's body, until it is 'begun'
  bool is_chunked = false;
  bool answers_head = false;  // it is a HEAD
  bool is_write = false;
  std::span<const Claim> claims{};  // of a write
  bool is_last = false;             // head asks the upstream to close
  bool may_repeat = false;          // it changes nothing: sent once more where a kept connection had ended
  bool drops_cache_rules = false;   // Cache-Control of the answer is not taken over
};

// A request that was begun elsewhere: that much of it was sent on the connection.
struct BegunUpstream {
  std::unique_ptr<UpstreamConnection> connection;  // null: nothing was sent
  std::size_t sent_bytes = 0;
  net::SteadyTime sent_at{};                     // when all of it was
  std::optional<net::Transport::Error> error{};  // by which reading ended
  bool is_early = false;                         // an answer was seen before all of it had arrived
};

class UpstreamRequest {
 public:
  // What is passed on of an answer's body, or sent of a request's, at a time.
  static constexpr std::size_t piece_bytes_max = 64 * 1024;

  explicit UpstreamRequest(UpstreamPool& pool) : pool_{pool} {}
  ~UpstreamRequest() { reset(); }
  UpstreamRequest(const UpstreamRequest&) = delete;
  UpstreamRequest& operator=(const UpstreamRequest&) = delete;

  // Sends the request and reads the answer, up to about held_bytes_max of its body.
  [[nodiscard]] net::Task<UpstreamOutcome> run(OutgoingRequest outgoing);
  // What run() will go on with. Its connection is reset in any case in which run() would reset it.
  void adopt(BegunUpstream begun);
  // Reads on, after 'begun', with no deadline meanwhile: appends up to about piece_bytes_max to the answer's
  // body. Within until.
  [[nodiscard]] net::Task<UpstreamOutcome> read_on(net::SteadyTime until);

  // The answer without what is for one hop only. body: what was read and not taken out yet.
  [[nodiscard]] http::Response& answer() noexcept { return answer_; }
  // Its body's length, where its head tells it.
  [[nodiscard]] std::optional<std::uint64_t> body_bytes() const noexcept { return body_bytes_; }
  // It came before the request was sent to its end.
  [[nodiscard]] bool is_early() const noexcept { return is_early_; }
  // When the last byte was sent; what the deadline counts from.
  [[nodiscard]] net::SteadyTime sent_at() const noexcept { return sent_at_; }
  // How the client's body ended, after cut_off.
  [[nodiscard]] http::Piece body_end() const noexcept { return body_end_; }

  // Resets the connection, if there still is one: nothing of the request is delivered afterwards.
  void reset() noexcept;

 private:
  using MaybeOutcome = std::optional<UpstreamOutcome>;

  [[nodiscard]] net::Task<UpstreamOutcome> exchange();
  [[nodiscard]] net::Task<UpstreamOutcome> go_on();
  [[nodiscard]] net::Task<UpstreamOutcome> await_answer();
  [[nodiscard]] bool is_one_segment(std::string_view head, std::string_view body) const noexcept;
  [[nodiscard]] net::Task<UpstreamOutcome> receive();
  [[nodiscard]] net::Task<MaybeOutcome> send_rest(std::string_view head, std::string_view body);
  [[nodiscard]] net::Task<MaybeOutcome> send_pieces();
  [[nodiscard]] net::Task<MaybeOutcome> send_part(std::string_view head, std::string_view body);
  // All of both, unless an answer comes first.
  [[nodiscard]] net::Task<net::Transport::Error> write_all(std::string_view head, std::string_view body);
  // Gives the client's body an end once a later holder waits.
  void look_for_successor();
  // Looks at what has come while the request is being sent.
  [[nodiscard]] bool has_early_answer();
  // Takes interim answers out of the buffer. False: something else is there.
  [[nodiscard]] bool is_interim_so_far();
  // Looks at what has come. Nothing: more must come.
  [[nodiscard]] MaybeOutcome take();
  [[nodiscard]] MaybeOutcome take_head();
  void take_fields(const ResponseHead& head);
  [[nodiscard]] UpstreamOutcome ended(const net::Transport::Error& error);
  [[nodiscard]] UpstreamOutcome complete();
  [[nodiscard]] UpstreamOutcome broken() noexcept;

  UpstreamPool& pool_;
  OutgoingRequest outgoing_;
  std::unique_ptr<UpstreamConnection> connection_;
  std::optional<BegunUpstream> begun_;  // without its connection
  http::HeadScanner scanner_;
  std::optional<ResponseBody> body_;
  http::Response answer_;
  std::optional<std::uint64_t> body_bytes_;
  std::optional<std::chrono::seconds> idle_max_;
  net::SteadyTime sent_at_{};
  std::string piece_;
  std::string chunk_line_;
  std::string last_chunk_;
  http::Piece body_end_ = http::Piece::end;
  unsigned interim_answers_ = 0;
  bool is_heard_ = false;        // a byte of an answer has come
  bool is_one_segment_ = false;  // the request was sent so that it arrives whole or not at all
  bool is_early_ = false;
  bool is_overtaken_ = false;
  bool is_proof_ = false;  // the answer says how a write ended
  bool is_reusable_ = false;
  bool is_large_ = false;  // the answer took more memory than most
};

}  // namespace fenceguard::proxy
