#pragma once

// PostgresService: the data side of a PostgreSQL storage: any number of clients, each with a connection of
// its own to the database behind it. The fence lies with the data, so any number of these stand side by side.
//
// Thread safety: all calls may be made from any thread.

#include <memory>
#include <string>

#include "server/data/data_service.hpp"
#include "server/net/server.hpp"
#include "server/postgres/shared.hpp"

namespace fenceguard::pgwire {

class PostgresService : public DataService {
 public:
  // Throws Unavailable if a thread cannot be made.
  PostgresService(const ServiceContext& context, PostgresOptions options);
  // As drain(0).
  ~PostgresService() override;

  std::string listen(const std::string& address) override;
  bool drain(std::chrono::milliseconds timeout) override { return server_.drain(timeout); }
  void end_held() override { server_.look_at_loans(); }
  [[nodiscard]] bool answers(std::chrono::milliseconds limit) override { return server_.answers(limit); }
  [[nodiscard]] std::int64_t in_flight() const noexcept override { return server_.in_flight(); }

 private:
  const std::shared_ptr<Shared> shared_;
  net::Server server_;
};

}  // namespace fenceguard::pgwire
