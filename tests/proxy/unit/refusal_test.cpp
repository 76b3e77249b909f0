#include <gtest/gtest.h>

#include "server/data/problem.hpp"

namespace fenceguard {
namespace {

TEST(RefusalTest, ARequestThatWasNoneIsRefusedWithTheStatusThatWasAskedFor) {
  for (const unsigned status : {400U, 408U, 413U, 417U, 431U, 500U, 503U})
    EXPECT_EQ(refuse_request(status, "why").status, status);
}

TEST(RefusalTest, AHandlerThatFailedMayHaveBegun) {
  EXPECT_NE(refuse_request(500, "why").body.find("urn:fenceguard:problem:unknown"), std::string::npos);
}

}  // namespace
}  // namespace fenceguard
