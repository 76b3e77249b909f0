#pragma once

// Outbox: what a client is sent. Answers that come together leave together; what the client does not take at
// once is sent as it takes it.
//
// Thread safety: the loop's thread only.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/net/connection.hpp"

namespace fenceguard::resp {

class Outbox {
 public:
  // sent: called when all was sent that could not be sent at once, or the connection is broken.
  Outbox(net::Connection& connection, std::function<void(bool is_broken)> sent)
      : connection_{connection}, sent_{std::move(sent)} {}

  void append(std::string_view bytes) { waiting_.append(bytes); }
  // Of what was not sent.
  [[nodiscard]] std::size_t bytes() const noexcept { return waiting_.size() + sending_.size(); }
  [[nodiscard]] bool empty() const noexcept { return !is_sending_ && waiting_.empty(); }
  [[nodiscard]] bool is_sending() const noexcept { return is_sending_; }
  // Sends; owner is kept meanwhile. False: the connection is broken.
  [[nodiscard]] bool flush(std::shared_ptr<void> owner);

 private:
  [[nodiscard]] net::Task<void> send_rest(std::shared_ptr<void> owner);

  net::Connection& connection_;
  const std::function<void(bool is_broken)> sent_;
  std::string waiting_, sending_;
  bool is_sending_ = false;
};

}  // namespace fenceguard::resp
