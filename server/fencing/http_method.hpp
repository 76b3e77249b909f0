#pragma once

// HttpMethod: a service that shuts the old holder out, such as a power switch or the interface of a cloud. It
// is called by POST with {"resource", "old_token", "new_token"}; an answer of 2xx but
// 202 (accepted) and 207 (in part) says that it did.

#include "server/fencing/fence_method.hpp"

namespace fenceguard {

class HttpMethod : public FenceMethod {
 public:
  // url: http://HOST[:PORT]/PATH. Throws InvalidInput.
  explicit HttpMethod(std::string_view url);

  [[nodiscard]] std::string name() const override { return "http"; }
  [[nodiscard]] FenceResult run(const TakeOver& take_over, const FenceRun& run) override;

 private:
  std::string server_;  // http://HOST:PORT
  std::string target_;
};

}  // namespace fenceguard
