#pragma once

// Session: one client's connection, and the one to PostgreSQL that it has for its whole life. It moves bytes
// between both and its relay. A side that does not read is not read for.
//
// Thread safety: the loop's thread only.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "server/leases/lease_holder.hpp"
#include "server/net/connection.hpp"
#include "server/net/session.hpp"
#include "server/postgres/relay/relay.hpp"
#include "server/postgres/shared.hpp"

namespace fenceguard::pgwire {

class Session final : public net::Session, private RelayObserver {
 public:
  Session(net::Loop& loop, net::Socket socket, std::shared_ptr<Shared> shared,
          std::shared_ptr<net::Service> service);
  ~Session() override;

  [[nodiscard]] net::Loop& loop() noexcept override { return loop_; }
  [[nodiscard]] const net::Service& service() const noexcept override { return *service_; }
  void start() override;
  void decline() override;
  [[nodiscard]] net::SteadyTime deadline() const noexcept override;
  void expire(net::SteadyTime now) override;
  void begin_drain() override;
  void look_at_loan() override;
  void cut() override;
  // Where there are too many connections the newest is refused, as PostgreSQL does.
  void end_waiting() override {}

 private:
  // What is being sent to one side.
  struct Outlet {
    std::string sending;
    bool is_sending = false;
  };
  // terminated: at once, with whatever is under way. finished: nothing of it is left.
  enum class End : std::uint8_t { none, terminated, finished };
  struct Server {
    enum class State : std::uint8_t { connecting, reading, gone };
    State state = State::connecting;
    std::optional<net::Transport> transport;
    net::ReadBuffer buffer{};
    net::Wakeup wakeup{};
    Outlet outlet{};
    std::size_t host = 0;  // of those that the URL names
  };
  // When a side that is not read is looked at, whether it has ended.
  struct Looks {
    net::SteadyTime at_server = net::SteadyTime::max(), at_client = net::SteadyTime::max();
    bool is_server_due = false;
  };

  // RelayObserver
  void ruled(const char* operation, const Claim& claim, Verdict verdict, std::int64_t highest) override;
  void failed(const char* operation, const Claim& claim, const Fault& fault) override;
  void missing() override;
  void not_signed(const Claim& claim) override;
  void is_standby() override;

  [[nodiscard]] net::Task<void> run();
  // The message with which the client begins; nothing: there is none, or it was answered.
  [[nodiscard]] net::Task<std::optional<Startup>> read_startup_message();
  // Makes the relay; the client was told why where there is none.
  [[nodiscard]] net::Task<void> begin(Startup startup);
  // TLS from the first byte on, with the protocol named (sslnegotiation=direct), or nothing of it.
  [[nodiscard]] net::Task<bool> take_direct_tls();
  [[nodiscard]] net::Task<bool> answer_tls(const Startup& startup);
  [[nodiscard]] net::Task<bool> begin_tls();
  [[nodiscard]] net::Task<void> cancel(std::string message);
  // To the first of the servers that can be reached; false: the client was told that there is none.
  [[nodiscard]] net::Task<bool> connect();
  [[nodiscard]] net::Task<bool> connect_to(const Host& host);
  [[nodiscard]] net::Task<bool> encrypt(const Host& host);
  [[nodiscard]] net::Task<void> read_client();
  [[nodiscard]] net::Task<void> read_server();
  void relay_safely(bool is_from_client, std::string_view bytes) noexcept;
  void refuse(std::string_view state, std::string_view message);
  void refuse_older_program(std::string_view why);
  void flush();
  void flush(net::Transport& transport, std::string& out, Outlet& outlet);
  [[nodiscard]] net::Task<void> send_rest(net::Transport& transport, std::string& out, Outlet& outlet);
  void look_again();
  void look_at_server();
  void look_at_client();
  // Ends the present wait for the client's bytes; what is being sent to it goes on, for a while.
  void stop_reading_client() noexcept;
  void wake();
  [[nodiscard]] bool is_sent() const noexcept;
  [[nodiscard]] bool is_cut() const noexcept { return end_ != End::none; }
  [[nodiscard]] bool is_server_gone() const noexcept { return server_.state == Server::State::gone; }
  void finish();

  net::Loop& loop_;
  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<net::Service> service_;
  std::optional<net::Connection> client_;
  Server server_;
  std::shared_ptr<HeldClaims> held_claims_;  // what it began under; null: what the client brought
  std::optional<Relay> relay_;
  Outlet to_client_;
  Looks looks_;
  std::string refusal_;  // before there is a relay
  std::string peer_;
  End end_ = End::none;
  bool is_client_gone_ = false;
  bool is_draining_ = false;
  bool is_declined_ = false;  // there are too many
  bool is_counted_ = false;   // in the loop's in_flight
};

}  // namespace fenceguard::pgwire
