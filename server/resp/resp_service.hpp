#pragma once

// RespService: the data side of a Redis storage: any number of clients, in RESP2, in front of one Redis
// server or one Redis Cluster. The fence lies with the data, so any number of these stand side by side.
//
// Thread safety: all calls may be made from any thread.

#include <memory>
#include <string>

#include "server/data/data_service.hpp"
#include "server/net/server.hpp"
#include "server/resp/shared.hpp"

namespace fenceguard::resp {

class RespService : public DataService {
 public:
  // Throws Unavailable if a thread cannot be made.
  RespService(const ServiceContext& context, RespOptions options);
  // As drain(0).
  ~RespService() override;

  // InvalidInput too where others than this machine would be lent the password of the storage's URL.
  std::string listen(const std::string& address) override;
  bool drain(std::chrono::milliseconds timeout) override;
  void end_held() override { server_.look_at_loans(); }
  [[nodiscard]] bool answers(std::chrono::milliseconds limit) override;
  [[nodiscard]] std::int64_t in_flight() const noexcept override;

 private:
  const std::shared_ptr<Shared> shared_;
  net::Server server_;
};

}  // namespace fenceguard::resp
