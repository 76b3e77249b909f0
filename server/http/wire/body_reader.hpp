#pragma once

// BodyReader: the body of the present request, taken from the connection piece by piece. It knows how the
// body is framed, asks for it with '100 Continue', and keeps its limit and its deadline.
//
// The deadline counts only while the client is waited for, so that a slow handler does not count against the
// client.
//
// Thread safety: the loop's thread only.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "server/http/limits.hpp"
#include "server/http/net.hpp"
#include "server/http/stream.hpp"
#include "server/http/wire/chunk_reader.hpp"
#include "server/http/wire/rejection.hpp"
#include "server/http/wire/request_reader.hpp"
#include "server/net/connection.hpp"

namespace fenceguard::http {

class BodyReader {
 public:
  // limits outlives it. earns_time: a long body has more time, see Limits.
  BodyReader(Connection& connection, const Limits& limits, bool earns_time);

  // The head of the next request is not here yet: something unread may come.
  void expect_head() noexcept { is_complete_ = false; }
  // The body has come with its head, and was taken.
  void expect_nothing() noexcept { is_complete_ = true; }
  // The head has come; head's body is what follows in the connection.
  void begin(const RequestReader& head);
  [[nodiscard]] bool is_complete() const noexcept { return is_complete_; }

  // As the Stream's.
  [[nodiscard]] bool take_whole(std::string& out);
  [[nodiscard]] Task<Piece> read(std::string& out, std::size_t bytes_max);

  // As the Stream's limit_body().
  void limit(std::chrono::nanoseconds wait_max, SteadyTime until) noexcept;

  // The answer that is due if the last piece was none; see Piece.
  [[nodiscard]] const std::optional<Rejection>& refusal() const noexcept { return refusal_; }

 private:
  // Sends '100 Continue' if the client waits for it.
  [[nodiscard]] Task<bool> ask_for_it();
  // Takes from the buffer. Nothing if more must come first.
  [[nodiscard]] std::optional<Piece> take_buffered(std::string& out, std::size_t bytes_max);
  // Waits for bytes: where little comes at a time for the connection's buffer, so that a client which
  // trickles costs little; where much comes for out itself.
  [[nodiscard]] Task<Transport::Read> wait_for_more(std::string& out, std::size_t bytes_max);
  [[nodiscard]] Connection::Arrival take(const Transport::Read& read, std::string& out, std::size_t before);
  // For the present wait; 0: none may begin.
  [[nodiscard]] std::chrono::milliseconds patience(SteadyTime now) const noexcept;
  void earn_time(std::size_t bytes) noexcept;
  Piece refuse(Piece piece, Rejection refusal);

  Connection& connection_;
  const Limits& limits_;
  const bool earns_time_;

  std::optional<ChunkReader> chunks_;  // of a body in chunks
  std::uint64_t bytes_left_ = 0;       // of any other
  std::uint64_t bytes_seen_ = 0;
  std::chrono::nanoseconds time_left_{0};
  std::chrono::nanoseconds wait_max_ = std::chrono::nanoseconds::max();
  SteadyTime until_ = SteadyTime::max();
  std::optional<Rejection> refusal_;
  bool must_ask_ = false;
  bool is_flowing_ = false;   // what came last filled the room that there was
  bool is_straight_ = false;  // the present wait is for out itself
  bool is_complete_ = false;
};

}  // namespace fenceguard::http
