// A permit that ends while the lanes' answer is on its way to a loop that goes on.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>

#include "server/net/loop.hpp"
#include "server/proxy/lane_permit.hpp"
#include "tests/proxy/guarded.hpp"

namespace fenceguard::test {
namespace {

using proxy::Kind;

// The loop waits until the lanes have answered, so that it can look at the answer only when the permit is
// gone.
TEST(LanePermitTest, WriteThatEntersForAnEndedPermitLeavesAsUnknown) {
  Guarded guarded{"http://127.0.0.1:1"};
  auto& lanes = guarded.lanes();
  const auto loop = std::make_shared<net::Loop>();
  loop->start();
  std::atomic<bool> is_over = false;
  loop->post([&] {
    std::optional<proxy::LanePermit> permit{std::in_place, lanes};
    const Claim claim{Resource{"r"}, Token{1}, Holder{"h"}, std::nullopt};
    EXPECT_FALSE(permit->enter(Kind::write, {claim}, *loop)) << "it raises its fence first";
    EXPECT_TRUE(http::eventually([&] { return lanes.figures().in_flight == 1; }));
    permit.reset();
    is_over = true;
  });
  EXPECT_TRUE(http::eventually([&] { return is_over && lanes.figures().in_flight == 0; }));
  EXPECT_EQ(lanes.figures().settle_closures, 1U);
  loop->stop();
}

}  // namespace
}  // namespace fenceguard::test
