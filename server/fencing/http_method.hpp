#pragma once

// HttpMethod: a service that shuts the old holder out, such as a power switch or the interface of a cloud. It
// is called by POST with {"resource", "old_token", "new_token"}; an answer of 2xx but
// 202 (accepted) and 207 (in part) says that it did. Under TLS it must show a certificate that one of the
// system's authorities signed.

#include "server/fencing/fence_method.hpp"
#include "server/net/address.hpp"

namespace fenceguard {

class HttpMethod : public FenceMethod {
 public:
  // url: http://HOST[:PORT]/PATH, or https. Throws InvalidInput.
  explicit HttpMethod(std::string_view url);

  [[nodiscard]] std::string name() const override { return "http"; }
  [[nodiscard]] FenceResult run(const TakeOver& take_over, const FenceRun& run) override;

 private:
  bool is_tls_ = false;
  std::string authority_;
  net::Address address_;
  std::string target_;
};

}  // namespace fenceguard
