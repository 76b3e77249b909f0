#pragma once

// Standby: what a guard answers while another one has the state: it is healthy and not ready, in /metrics
// too, and everything else is unavailable. Ends, and gives the addresses free, with its owner.

#include <memory>
#include <string>

namespace fenceguard {

class Standby {
 public:
  // Binds the control side's address and the probe's, which may be empty. Throws as http::Server::listen.
  Standby(const std::string& control, const std::string& probe);
  ~Standby();
  Standby(const Standby&) = delete;
  Standby& operator=(const Standby&) = delete;

  // As bound; an empty probe stays empty.
  [[nodiscard]] const std::string& control_address() const noexcept;
  [[nodiscard]] const std::string& probe_address() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fenceguard
