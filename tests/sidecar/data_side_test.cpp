// The data side as a client sees it: every answer of the table, through the real server and storage.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sidecar/running.hpp"

namespace fenceguard::test {
namespace {

using testing::HasSubstr;
using testing::Not;

Pairs with(Pairs fields, const std::string& name, const std::string& value) {
  fields.emplace_back(name, value);
  return fields;
}

class DataSideTest : public testing::Test {
 protected:
  http::Response put(std::int64_t token, const std::string& body = "70", const std::string& holder = "h") {
    return running_.data("PUT", "/accounts/42", claim_fields(token, holder), body);
  }

  Running running_;
};

TEST_F(DataSideTest, AnObjectIsCreatedReplacedReadAndRemoved) {
  const auto created = put(34);
  EXPECT_EQ(created.status, 201U);
  EXPECT_EQ(field(created, "Fencing-Verdict"), "admitted");
  EXPECT_EQ(field(created, "Fencing-Highest"), "34");
  EXPECT_NE(field(created, "ETag"), "");
  EXPECT_EQ(put(34, "71").status, 204U);

  const auto read = running_.data("GET", "/accounts/42");
  EXPECT_EQ(read.status, 200U);
  EXPECT_EQ(read.body, "71");
  EXPECT_EQ(field(read, "Content-Type"), "application/octet-stream");
  EXPECT_EQ(field(read, "Fencing-Verdict"), "");
  EXPECT_EQ(field(read, "Fencing-Highest"), "");

  EXPECT_EQ(running_.data("DELETE", "/accounts/42", claim_fields(34)).status, 204U);
  const auto again = running_.data("DELETE", "/accounts/42", claim_fields(34));
  EXPECT_EQ(again.status, 404U);
  EXPECT_EQ(field(again, "Fencing-Verdict"), "admitted");
  EXPECT_EQ(running_.data("GET", "/accounts/42").status, 404U);
}

TEST_F(DataSideTest, HeadIsGetWithoutTheBody) {
  put(34, "12345");
  const auto head = running_.data("HEAD", "/accounts/42");
  EXPECT_EQ(head.status, 200U);
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(head.head_length.value_or(5), 5U);
  EXPECT_EQ(field(head, "ETag"), field(running_.data("GET", "/accounts/42"), "ETag"));
  EXPECT_EQ(running_.data("HEAD", "/nothing").status, 404U);
}

TEST_F(DataSideTest, TheContentTypeIsKept) {
  running_.data("PUT", "/a", with(claim_fields(1), "Content-Type", "text/plain; charset=utf-8"), "x");
  EXPECT_EQ(field(running_.data("GET", "/a"), "Content-Type"), "text/plain; charset=utf-8");
}

TEST_F(DataSideTest, ALowerTokenIsStaleAndWritesNothing) {
  put(35, "new", "b");
  const auto refused = put(34, "old", "a");
  EXPECT_EQ(refused.status, 412U);
  EXPECT_EQ(field(refused, "Fencing-Verdict"), "stale");
  EXPECT_EQ(field(refused, "Fencing-Highest"), "35");
  EXPECT_EQ(problem_of(refused), "stale");
  EXPECT_EQ(running_.data("GET", "/accounts/42").body, "new");
  EXPECT_EQ(running_.metric("fenceguard_verdicts_total{storage=\"sqlite\",verdict=\"stale\"}"), 1);
}

TEST_F(DataSideTest, TheSameTokenOfAnotherHolderIsAConflictThatNamesNobody) {
  put(34, "first", "the-first-holder");
  const auto refused = put(34, "second", "the-second-holder");
  EXPECT_EQ(refused.status, 409U);
  EXPECT_EQ(field(refused, "Fencing-Verdict"), "conflict");
  EXPECT_EQ(problem_of(refused), "conflict");
  EXPECT_THAT(refused.body, Not(HasSubstr("the-first-holder")));
  EXPECT_EQ(running_.metric("fenceguard_token_conflicts_total"), 1);
}

TEST_F(DataSideTest, AWriteWithoutATokenIsMissingOne) {
  for (const char* method : {"PUT", "DELETE"}) {
    const auto refused = running_.data(method, "/accounts/42", {}, method == std::string{"PUT"} ? "x" : "");
    EXPECT_EQ(refused.status, 428U);
    EXPECT_EQ(field(refused, "Fencing-Verdict"), "missing");
    EXPECT_EQ(field(refused, "Fencing-Highest"), "");
  }
  EXPECT_EQ(running_.metric("fenceguard_verdicts_total{storage=\"sqlite\",verdict=\"missing\"}"), 2);
}

TEST_F(DataSideTest, ARepeatedSequenceIsADuplicateAndAnOvertakenOneStale) {
  const auto write = [&](const char* sequence, const std::string& body) {
    return running_.data("PUT", "/a", with(claim_fields(1), "Fencing-Sequence", sequence), body);
  };
  EXPECT_EQ(write("7", "seven").status, 201U);
  const auto duplicate = write("7", "seven again");
  EXPECT_EQ(duplicate.status, 200U);
  EXPECT_EQ(field(duplicate, "Fencing-Verdict"), "duplicate");
  EXPECT_EQ(field(duplicate, "Fencing-Highest"), "1");
  EXPECT_EQ(running_.data("GET", "/a").body, "seven");
  EXPECT_EQ(write("6", "six").status, 412U);
}

TEST_F(DataSideTest, AFailedPreconditionIsNotAStaleClaim) {
  const auto etag = field(put(34), "ETag");
  const auto failed = running_.data("PUT", "/accounts/42", with(claim_fields(34), "If-None-Match", "*"), "x");
  EXPECT_EQ(failed.status, 412U);
  EXPECT_EQ(field(failed, "Fencing-Verdict"), "admitted");
  EXPECT_EQ(field(failed, "Fencing-Highest"), "34");
  EXPECT_EQ(problem_of(failed), "precondition");
  const auto matched =
      running_.data("PUT", "/accounts/42", with(claim_fields(34), "If-Match", "\"no\", " + etag), "y");
  EXPECT_EQ(matched.status, 204U);
  EXPECT_EQ(running_.data("DELETE", "/accounts/42", with(claim_fields(34), "If-Match", etag)).status, 412U);
}

TEST_F(DataSideTest, ASequenceIsFreeAgainAfterARefusedWrite) {
  put(1, "x");
  auto fields = with(claim_fields(1), "Fencing-Sequence", "5");
  EXPECT_EQ(running_.data("PUT", "/accounts/42", with(fields, "If-None-Match", "*"), "y").status, 412U);
  EXPECT_EQ(running_.data("PUT", "/accounts/42", fields, "y").status, 204U);
}

TEST_F(DataSideTest, AKnownObjectIsNotSentAgain) {
  const auto etag = field(put(34), "ETag");
  const auto read = running_.data("GET", "/accounts/42", {{"If-None-Match", etag}});
  EXPECT_EQ(read.status, 304U);
  EXPECT_EQ(field(read, "ETag"), etag);
  EXPECT_EQ(read.body, "");
}

TEST_F(DataSideTest, AFencedReadAdvancesFirst) {
  put(34);
  const auto read = running_.data("GET", "/accounts/42", claim_fields(35, "b"));
  EXPECT_EQ(read.status, 200U);
  EXPECT_EQ(read.body, "70");
  EXPECT_EQ(field(read, "Fencing-Verdict"), "admitted");
  EXPECT_EQ(field(read, "Fencing-Highest"), "35");
  EXPECT_EQ(field(read, "Cache-Control"), "no-store");
  EXPECT_EQ(put(34, "late").status, 412U);
  EXPECT_EQ(running_.data("GET", "/accounts/42", claim_fields(34)).status, 412U);
  const auto missing = running_.data("GET", "/nothing", claim_fields(1));
  EXPECT_EQ(missing.status, 404U);
  EXPECT_EQ(field(missing, "Fencing-Verdict"), "admitted");
}

TEST_F(DataSideTest, AFencedReadDoesNotUseUpASequence) {
  const auto fields = with(claim_fields(1), "Fencing-Sequence", "5");
  EXPECT_EQ(running_.data("GET", "/a", fields).status, 404U);
  EXPECT_EQ(running_.data("PUT", "/a", fields, "x").status, 201U);
}

TEST_F(DataSideTest, OtherMethodsAreNotAllowedAndMoveNoFence) {
  put(1);
  for (const char* method : {"POST", "PATCH", "OPTIONS", "MOVE"}) {
    const auto refused = running_.data(method, "/accounts/42", claim_fields(99));
    EXPECT_EQ(refused.status, 405U) << method;
    EXPECT_EQ(field(refused, "Allow"), "GET, HEAD, PUT, DELETE");
    EXPECT_EQ(field(refused, "Fencing-Verdict"), "");
  }
  EXPECT_EQ(put(1).status, 204U);
}

TEST_F(DataSideTest, MalformedRequestsAre400AndMoveNoFence) {
  put(1);
  for (const char* token : {"0", "-1", "+1", "01", "1e3", "0x10", "", "9223372036854775808"}) {
    EXPECT_EQ(running_.data("PUT", "/accounts/42", {{"Fencing-Token", token}}, "x").status, 400U) << token;
  }
  EXPECT_EQ(
      running_.data("PUT", "/accounts/42", {{"Fencing-Token", "9"}, {"Fencing-Token", "9"}}, "x").status,
      400U);
  EXPECT_EQ(running_.data("GET", "/accounts/42", {{"Fencing-Holder", "h"}}).status, 400U);
  EXPECT_EQ(running_.data("GET", "/accounts/42", {{"If-Match", "unquoted"}}).status, 400U);
  EXPECT_EQ(running_.data("PUT", "/accounts/42", with(claim_fields(9), "Content-Range", "bytes 0-1/2"), "xx")
                .status,
            400U);
  for (const char* target : {"/", "/a//b", "/a/../b", "/a/%2e%2e/b", "/a%2fb", "/a%00b", "/a?b", "/a%"}) {
    EXPECT_EQ(running_.data("PUT", target, claim_fields(9), "x").status, 400U) << target;
  }
  EXPECT_EQ(put(1).status, 204U);
}

TEST_F(DataSideTest, TwoEncodingsAreOneResource) {
  put(35);
  EXPECT_EQ(running_.data("PUT", "/account%73/%34%32", claim_fields(34), "x").status, 412U);
  EXPECT_EQ(running_.data("GET", "/%61ccounts/42").body, "70");
}

TEST_F(DataSideTest, AFaultIsUnavailableOrUnknownAndSaysWhich) {
  running_.objects().set_fault(FaultKind::unavailable);
  for (const auto& answer : {put(1), running_.data("GET", "/accounts/42")}) {
    EXPECT_EQ(answer.status, 503U);
    EXPECT_EQ(field(answer, "Fencing-Verdict"), "unavailable");
    EXPECT_EQ(field(answer, "Retry-After"), "1");
    EXPECT_EQ(problem_of(answer), "unavailable");
  }
  running_.objects().set_fault(FaultKind::unknown);
  const auto unknown = put(1);
  EXPECT_EQ(unknown.status, 500U);
  EXPECT_EQ(field(unknown, "Fencing-Verdict"), "unknown");
  EXPECT_EQ(problem_of(unknown), "unknown");
  EXPECT_EQ(running_.metric("fenceguard_unknown_total"), 1);
  // A fenced read writes nothing but the fence.
  const auto read = running_.data("GET", "/accounts/42", claim_fields(1));
  EXPECT_EQ(read.status, 503U);
  EXPECT_EQ(field(read, "Fencing-Verdict"), "unavailable");
  EXPECT_EQ(field(read, "Retry-After"), "1");
  EXPECT_NE(read.body.find("the fence may have been raised"), std::string::npos) << read.body;
  EXPECT_EQ(running_.metric("fenceguard_unknown_total"), 1);
  running_.objects().set_fault(std::nullopt);
  EXPECT_EQ(put(1).status, 201U);
}

TEST(ObjectService, WithADepthOneLockCoversEverythingUnderIt) {
  RunningOptions options;
  options.sidecar.resource_depth = 2;
  const Running running{std::move(options)};
  EXPECT_EQ(running.data("PUT", "/accounts/42/balance", claim_fields(35), "x").status, 201U);
  EXPECT_EQ(running.data("PUT", "/accounts/42/limit", claim_fields(34), "x").status, 412U);
  EXPECT_EQ(running.data("PUT", "/accounts/43/limit", claim_fields(34), "x").status, 201U);
  EXPECT_EQ(running.data("PUT", "/accounts", claim_fields(36), "x").status, 400U);
}

TEST(ObjectService, AnAbsurdTokenIsImplausibleAndMovesNoFence) {
  RunningOptions options;
  options.storage.jump_max = 1000;
  const Running running{std::move(options)};
  EXPECT_EQ(running.data("PUT", "/a", claim_fields(1000), "x").status, 201U);
  const auto refused = running.data("PUT", "/a", claim_fields(5000), "y");
  EXPECT_EQ(refused.status, 422U);
  EXPECT_EQ(field(refused, "Fencing-Verdict"), "implausible");
  EXPECT_EQ(problem_of(refused), "implausible");
  EXPECT_EQ(running.data("PUT", "/a", claim_fields(1000), "z").status, 204U);
}

TEST(ObjectService, ABodyOverTheLimitIs413AndMovesNoFence) {
  RunningOptions options;
  options.sidecar.data_limits.body_bytes_max = 1000;
  const Running running{std::move(options)};
  EXPECT_EQ(running.data("PUT", "/a", claim_fields(9), std::string(1001, 'x')).status, 413U);
  EXPECT_EQ(running.data("PUT", "/a", claim_fields(1), std::string(1000, 'x')).status, 201U);
}

}  // namespace
}  // namespace fenceguard::test
