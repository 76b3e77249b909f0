#pragma once

// GuardServer: a running 'fenceguard serve' of a demonstration, on free ports of 127.0.0.1. Dies with its
// owner.
//
// Not thread-safe.

#include "demo/kit/harness.hpp"

namespace fenceguard::demo {

struct GuardOptions {
  std::string storage;
  std::string source{};  // empty: the storage's own
  std::string state{};   // where the storage does not keep the fences itself
  bool initialise = false;
  bool has_data_side = true;
  std::vector<std::string> arguments{};  // further ones
};

class GuardServer {
 public:
  // Throws Unavailable with what it said last if it does not start.
  GuardServer(Harness& harness, const GuardOptions& options);

  // http://HOST:PORT each.
  [[nodiscard]] const std::string& data() const noexcept { return data_; }
  [[nodiscard]] const std::string& control() const noexcept { return control_; }
  // In order.
  void end() { process_->end(); }

 private:
  std::unique_ptr<Process> process_;
  std::string data_;
  std::string control_;
};

}  // namespace fenceguard::demo
