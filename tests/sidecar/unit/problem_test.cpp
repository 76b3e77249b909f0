// Every 'no' and every fault as problem+json.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <set>

#include "server/data/problem.hpp"

namespace fenceguard {
namespace {

const Claim claim{Resource{"accounts/42"}, Token{34}, Holder{"asker"}, Sequence{7}};

boost::json::object body_of(const http::Response& response) {
  return boost::json::parse(response.body).as_object();
}

Ruling ruling(Verdict verdict, std::int64_t highest, bool closed = false) {
  return {verdict, highest, Fence{Token{highest}, Holder{"the-present-holder"}, Sequence{9}, closed}, false};
}

TEST(Problem, AStaleClaimIsToldWhatWasSeenButNotByWhom) {
  const auto response = refusal(claim, ruling(Verdict::stale, 35));
  EXPECT_EQ(response.status, 412U);
  EXPECT_EQ(response.fields.single("Fencing-Verdict"), "stale");
  EXPECT_EQ(response.fields.single("Fencing-Highest"), "35");
  EXPECT_EQ(response.fields.single("Content-Type"), "application/problem+json");
  const auto body = body_of(response);
  EXPECT_EQ(body.at("type"), "urn:fenceguard:problem:stale");
  EXPECT_EQ(body.at("status"), 412);
  EXPECT_EQ(body.at("verdict"), "stale");
  EXPECT_EQ(body.at("resource"), "accounts/42");
  EXPECT_EQ(body.at("token"), "34");
  EXPECT_EQ(body.at("highest"), "35");
  EXPECT_THAT(response.body, testing::Not(testing::HasSubstr("the-present-holder")));
}

TEST(Problem, TheReasonsOfAStaleClaimAreToldApart) {
  const auto older = body_of(refusal(claim, ruling(Verdict::stale, 35))).at("detail");
  const auto closed = body_of(refusal(claim, ruling(Verdict::stale, 34, true))).at("detail");
  const auto overtaken = body_of(refusal(claim, ruling(Verdict::stale, 34))).at("detail");
  EXPECT_NE(older, closed);
  EXPECT_NE(closed, overtaken);
  EXPECT_NE(older, overtaken);
}

TEST(Problem, AConflictIs409AndNamesNobody) {
  const auto response = refusal(claim, ruling(Verdict::conflict, 34));
  EXPECT_EQ(response.status, 409U);
  EXPECT_EQ(body_of(response).at("type"), "urn:fenceguard:problem:conflict");
  EXPECT_FALSE(body_of(response).contains("holder"));
  EXPECT_THAT(response.body, testing::Not(testing::HasSubstr("the-present-holder")));
}

TEST(Problem, FaultsKeepTheirKind) {
  const auto status = [](FaultKind kind) { return fault_response({kind, "why"}, nullptr); };
  EXPECT_EQ(status(FaultKind::invalid_input).status, 400U);
  EXPECT_FALSE(status(FaultKind::invalid_input).fields.contains("Fencing-Verdict"));
  EXPECT_EQ(status(FaultKind::implausible).status, 422U);
  EXPECT_EQ(status(FaultKind::implausible).fields.single("Fencing-Verdict"), "implausible");
  EXPECT_EQ(status(FaultKind::unavailable).status, 503U);
  EXPECT_EQ(status(FaultKind::unavailable).fields.single("Retry-After"), "1");
  EXPECT_EQ(status(FaultKind::unavailable).fields.single("Fencing-Verdict"), "unavailable");
  EXPECT_EQ(status(FaultKind::unknown).status, 500U);
  EXPECT_EQ(status(FaultKind::unknown).fields.single("Fencing-Verdict"), "unknown");
}

TEST(Problem, WhatNeverBecameARequestEndsTheConnection) {
  for (const unsigned status : {400U, 408U, 413U, 431U}) {
    const auto response = refuse_request(status, "why");
    EXPECT_EQ(response.status, status);
    EXPECT_TRUE(response.close);
    EXPECT_FALSE(response.fields.contains("Fencing-Verdict"));
  }
}

TEST(Problem, ARefusalOrAFaultHasItsVerdictInFieldAndBodyWhereverItIsMade) {
  for (const auto& [response, word] : {std::pair{refuse_request(500, "why"), "unknown"},
                                       std::pair{refuse_request(503, "why"), "unavailable"},
                                       std::pair{to_response(Problem::unavailable, {"why"}), "unavailable"},
                                       std::pair{to_response(Problem::missing, {"why"}), "missing"}}) {
    EXPECT_EQ(response.fields.single("Fencing-Verdict"), word);
    EXPECT_EQ(body_of(response).at("verdict"), word);
  }
  for (const auto problem : {Problem::not_found, Problem::held, Problem::lost, Problem::precondition}) {
    EXPECT_FALSE(to_response(problem, {"why"}).fields.contains("Fencing-Verdict"));
  }
}

TEST(Problem, RetryAfterIsAtLeastOneSecondAndRoundedUp) {
  using std::chrono::milliseconds;
  EXPECT_EQ(retry_after_seconds(milliseconds{0}), "1");
  EXPECT_EQ(retry_after_seconds(milliseconds{1000}), "1");
  EXPECT_EQ(retry_after_seconds(milliseconds{1001}), "2");
}

TEST(Problem, NamesAreUnique) {
  std::set<std::string_view> names;
  const auto count = static_cast<std::size_t>(Problem::unknown) + 1;
  for (std::size_t i = 0; i < count; ++i) names.insert(kind_of(static_cast<Problem>(i)).name);
  EXPECT_EQ(names.size(), count);
  EXPECT_EQ(kind_of(Problem::unknown).name, "unknown");
}

}  // namespace
}  // namespace fenceguard
