#pragma once

// SessionStream: the present request of a session, as a StreamHandler sees it.
//
// Thread safety: the loop's thread only.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/stream.hpp"

namespace fenceguard::http {

class Session;

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

}  // namespace fenceguard::http
