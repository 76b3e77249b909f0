#pragma once

// The fence methods that are a storage's own, by what they are made of: a call that ends the connections of
// old holders.

#include "guard/error.hpp"
#include "server/fencing/fence_method.hpp"

namespace fenceguard {

// end answers how many connections it ended; what it throws is a failure.
class ConnectionsMethod : public FenceMethod {
 public:
  using End = std::function<int(const Resource&, Token old_token, std::chrono::milliseconds limit)>;
  ConnectionsMethod(std::string name, End end) : name_{std::move(name)}, end_{std::move(end)} {}

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] FenceResult run(const TakeOver& take_over, const FenceRun& run) override {
    try {
      const int ended = end_(Resource{take_over.resource}, Token{take_over.old_token}, run.limit);
      return {FenceResult::Outcome::success, "connections ended: " + std::to_string(ended)};
    } catch (const Error& error) {
      return {FenceResult::Outcome::failure, printable(error.what())};
    }
  }

 private:
  const std::string name_;
  const End end_;
};

}  // namespace fenceguard
