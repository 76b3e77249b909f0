#pragma once

// Session: one client's connection, in RESP2: reads requests for its relay, and sends what comes of them to
// the client. A client that does not read is not read from, and one that has too much waiting for it is
// terminated. What the relay does at Redis goes by ClientLinks, what it rules by RulingReporter.
//
// Thread safety: the loop's thread only.

#include <memory>
#include <string_view>

#include "server/net/connection.hpp"
#include "server/net/session.hpp"
#include "server/resp/outbox.hpp"
#include "server/resp/relay/relay.hpp"
#include "server/resp/ruling_reporter.hpp"
#include "server/resp/shared.hpp"
#include "server/resp/upstream/client_links.hpp"
#include "server/resp/wire/request_reader.hpp"

namespace fenceguard::resp {

class Session final : public net::Session, private ClientPort {
 public:
  Session(net::Loop& loop, net::Socket socket, std::shared_ptr<Shared> shared,
          std::shared_ptr<net::Service> service);

  [[nodiscard]] net::Loop& loop() noexcept override { return connection_.loop(); }
  [[nodiscard]] const net::Service& service() const noexcept override { return *service_; }
  void start() override;
  void decline() override;
  [[nodiscard]] net::SteadyTime deadline() const noexcept override { return connection_.deadline(); }
  void expire(net::SteadyTime now) override;
  void begin_drain() override;
  void look_at_loan() override;
  void cut() override;
  // Where there are too many connections the newest is refused, as Redis does.
  void end_waiting() override {}

 private:
  // ClientPort
  void answer(std::string_view bytes) override;
  void end() override;
  [[nodiscard]] std::int64_t connection_number() const override { return number_; }

  [[nodiscard]] net::Task<void> run();
  [[nodiscard]] net::Task<bool> begin();
  // False, and the client is told: what is to be held for it is not held.
  [[nodiscard]] net::Task<bool> borrow_claims();
  [[nodiscard]] net::Task<bool> read();
  [[nodiscard]] net::Task<bool> wait_for_room();
  [[nodiscard]] bool is_full() noexcept;
  void finish();
  // Takes what requests there are, as far as the relay takes them now.
  void pump();
  void take_requests();
  [[nodiscard]] bool takes_requests() const noexcept;
  // Something has come about: looks again, once for all that comes in this turn.
  void schedule();
  void look_again();
  // Out of memory in the middle: what the relay awaits is not certain any more.
  template <class Action>
  void terminate_where_thrown(const Action& action) noexcept;
  void flush();
  void note_sent(bool is_broken);
  void count_in_flight();

  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<net::Service> service_;
  const std::int64_t number_;
  net::Connection connection_;
  ClientLinks links_;
  RulingReporter reporter_;
  Relay relay_;
  RequestReader reader_;
  Outbox outbox_;
  std::size_t counted_ = 0;  // in the loop's in_flight
  bool is_scheduled_ = false, is_pumping_ = false;
  bool is_ending_ = false, is_draining_ = false, is_over_ = false;
  bool fills_up_ = false;  // the last read took all the room there was
};

}  // namespace fenceguard::resp
