#pragma once

// AccountCli: a program of others as the client of an account, such as redis-cli or psql, straight at the
// server or through the sidecar: a process that knows nothing of fenceguard, and is given its claim in the
// way that the sidecar takes one.
//
// Not thread-safe.

#include <boost/json/object.hpp>
#include <cstdint>
#include <memory>

#include "demo/kit/harness.hpp"

namespace fenceguard::demo {

class AccountCli {
 public:
  virtual ~AccountCli() = default;

  // Says what a request of a demonstration's client means, and how that ended: see Reply in
  // kit/client_process.hpp. Between the two it may be paused. Both throw Unavailable where there is no such
  // program, or it has ended.
  void send(const boost::json::object& request);
  [[nodiscard]] boost::json::object receive();
  [[nodiscard]] bool is_asked() const noexcept { return is_asked_; }

  void pause() { process_->pause(); }
  void resume();

 protected:
  virtual void ask(const boost::json::object& request) = 0;
  [[nodiscard]] virtual boost::json::object answer() = 0;

  std::unique_ptr<Process> process_;

 private:
  bool is_asked_ = false;
  std::int64_t began_us_ = 0;
};

}  // namespace fenceguard::demo
