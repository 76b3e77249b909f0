#pragma once

// Session: one client's connection, and the one to PostgreSQL that it has for its whole life. It moves bytes
// between both and its relay. A side that does not read is not read for.
//
// Thread safety: the loop's thread only.

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
  void finish();

  net::Loop& loop_;
  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<net::Service> service_;
  std::optional<net::Connection> client_;
  std::optional<net::Transport> server_;
  net::ReadBuffer server_buffer_;
  net::Wakeup server_wakeup_;
  std::shared_ptr<HeldClaims> held_claims_;  // what it began under; null: what the client brought
  std::optional<Relay> relay_;
  Outlet to_client_, to_server_;
  net::SteadyTime looks_at_server_ = net::SteadyTime::max();  // whether it has ended, while it is not read
  std::string refusal_;                                       // before there is a relay
  std::string peer_;
  std::size_t host_ = 0;  // that it is connected to
  net::SteadyTime looks_at_client_ = net::SteadyTime::max();
  bool is_look_due_ = false;
  bool is_client_gone_ = false, is_server_gone_ = false;
  bool is_reading_server_ = false, is_draining_ = false, is_cut_ = false, is_over_ = false;
  bool is_declined_ = false;  // there are too many
  bool is_counted_ = false;   // in the loop's in_flight
};

}  // namespace fenceguard::pgwire
