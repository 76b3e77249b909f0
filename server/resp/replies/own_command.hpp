#pragma once

// OwnCommand: one command on a connection of the client's own: it may wait (BLPOP), or Redis keeps something
// for the client with it (WATCH), or answers for what was said on that connection (WAIT). Nothing else of the
// client is sent before its reply.
//
// Not thread-safe.

#include "server/resp/replies/own_connection.hpp"
#include "server/resp/replies/pending_reply.hpp"

namespace fenceguard::resp {

class OwnCommand final : public PendingReply {
 public:
  enum class Kind : std::uint8_t { reads, writes, runs_script, watches };
  struct Request {
    int slot = -1;
    std::string_view bytes{};
    bool counts_writes = false;  // WAIT: of the writes of this connection
    // Must have no fence, which is asked first: one that is made while the command waits is not seen.
    Unclaimed unclaimed{};
  };

  OwnCommand(const RelayContext& context, OwnConnection& connection, Kind kind, Request request);

  std::size_t send(bool again) override;
  [[nodiscard]] Answer replied(std::string_view reply) override;
  [[nodiscard]] Answer lost(bool was_sent, std::string_view why) override;
  [[nodiscard]] bool writes() const noexcept override {
    return kind_ == Kind::writes || kind_ == Kind::runs_script;
  }
  [[nodiscard]] bool is_blocking() const noexcept override { return true; }
  [[nodiscard]] bool awaits_others() const noexcept override { return kind_ != Kind::watches; }

 private:
  // What the next reply is to.
  enum class Stage : std::uint8_t { question, warm_up, command };

  void send_command();
  [[nodiscard]] std::string_view end(std::string_view reply);
  [[nodiscard]] std::string_view refuse(std::string_view error);

  OwnConnection& connection_;
  const Kind kind_;
  Stage stage_ = Stage::command;
  const bool counts_writes_;
  const Unclaimed unclaimed_;
  const std::string request_;
};

// Under Redis Cluster. Where to, a client is not told: it would go there itself.
inline constexpr std::string_view keys_move =
    "TRYAGAIN the cluster moves these keys just now; nothing was done, try again";

// By which a client would go to another server, bypassing the guard.
[[nodiscard]] bool leads_elsewhere(std::string_view reply) noexcept;

}  // namespace fenceguard::resp
