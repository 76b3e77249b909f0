#include "server/proxy/request/operation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fenceguard::proxy {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;
using testing::HasSubstr;

std::variant<Operation, Rejection> parse(const std::string& method, const std::string& target,
                                         const Pairs& fields = {}, std::size_t depth = 0) {
  http::Request request{method, target, {}, {}, false};
  request.fields.add("Host", "guard");
  for (const auto& [name, value] : fields) request.fields.add(name, value);
  return parse_operation(request, {depth, nullptr});
}

unsigned status(const std::variant<Operation, Rejection>& parsed) {
  const auto* rejection = std::get_if<Rejection>(&parsed);
  return rejection == nullptr ? 0 : rejection->response.status;
}

Pairs with_claim(Pairs fields) {
  fields.insert(fields.begin(), {{"Fencing-Token", "34"}, {"Fencing-Holder", "h"}});
  return fields;
}

TEST(OperationTest, APlainReadHasNoClaim) {
  for (const auto* method : {"GET", "HEAD", "OPTIONS", "PROPFIND", "REPORT", "SEARCH"}) {
    const auto parsed = parse(method, "/a");
    ASSERT_EQ(status(parsed), 0U) << method;
    EXPECT_TRUE(std::get<Operation>(parsed).claims.empty());
    EXPECT_FALSE(std::get<Operation>(parsed).is_write());
  }
}

TEST(OperationTest, AReadWithATokenIsFencedAndUsesUpNoSequence) {
  const auto parsed = parse("GET", "/a", with_claim({{"Fencing-Sequence", "7"}}));
  ASSERT_EQ(status(parsed), 0U);
  ASSERT_EQ(std::get<Operation>(parsed).claims.size(), 1U);
  EXPECT_EQ(std::get<Operation>(parsed).claims[0].sequence, std::nullopt);
}

TEST(OperationTest, CollectionMethodsLeaveFencedMembersAlone) {
  const auto claims = with_claim(
      {{"Destination", "/b"}, {"Fencing-Destination-Token", "3"}, {"Fencing-Destination-Holder", "h"}});
  for (const std::string method : {"MOVE", "COPY", "DELETE", "LOCK"}) {
    const bool is_pair = method == "MOVE" || method == "COPY";
    const auto tried = [&](const Pairs& more, std::size_t depth) {
      auto fields = is_pair ? claims : with_claim({});
      fields.insert(fields.end(), more.begin(), more.end());
      return parse(method, "/a", fields, depth);
    };
    ASSERT_EQ(status(tried({}, 0)), 0U) << method;
    EXPECT_TRUE(std::get<Operation>(tried({}, 0)).is_alone) << method;
    EXPECT_EQ(status(tried({{"depth", "0"}}, 0)), 0U) << method;
    for (const auto* wrong : {"infinity", "Infinity", "1", "", "0, infinity"}) {
      const auto parsed = tried({{"Depth", wrong}}, 0);
      ASSERT_EQ(status(parsed), 400U) << method << " " << wrong;
      EXPECT_THAT(std::get<Rejection>(parsed).response.body, HasSubstr("Depth: 0"));
    }
    EXPECT_EQ(status(tried({{"Depth", "0"}, {"Depth", "infinity"}}, 0)), 400U) << method;
    EXPECT_EQ(status(tried({{"Overwrite", "T"}}, 0)), is_pair ? 400U : 0U) << method;
    EXPECT_EQ(status(tried({{"Overwrite", "F"}}, 0)), 0U) << method;
    const auto within = tried({{"Depth", "infinity"}, {"Overwrite", "T"}}, 1);
    ASSERT_EQ(status(within), 0U) << method;
    EXPECT_FALSE(std::get<Operation>(within).is_alone) << method;
  }
}

TEST(OperationTest, NoPathAboveTheResourcesIsWrittenTo) {
  const auto claims = with_claim({{"Fencing-Destination-Token", "3"}, {"Fencing-Destination-Holder", "h"}});
  for (const auto* method : {"PUT", "POST", "PATCH", "DELETE", "MKCOL", "PROPPATCH", "LOCK", "UNLOCK"}) {
    for (const auto* above : {"/a", "/a/", "/a/b", "/a/b/"})
      EXPECT_EQ(status(parse(method, above, with_claim({}), 3)), 400U) << method << " " << above;
  }
  for (const auto* method : {"MOVE", "COPY"}) {
    auto fields = claims;
    fields.emplace_back("Destination", "/a");
    EXPECT_EQ(status(parse(method, "/a/b", fields, 2)), 400U) << method;
    EXPECT_EQ(status(parse(method, "/a", fields, 2)), 400U) << method;
  }
}

TEST(OperationTest, ACollectionIsMadeAndLookedAtByItsFinalSlash) {
  for (const auto* method : {"GET", "HEAD", "OPTIONS", "PROPFIND", "MKCOL"}) {
    const auto parsed = parse(method, "/a/b%20c/", with_claim({}));
    ASSERT_EQ(status(parsed), 0U) << method;
    const auto& target = std::get<Operation>(parsed).target;
    EXPECT_EQ(target.resource.name(), "a/b c") << method;
    EXPECT_EQ(target.path, "/a/b%20c/") << method;
    for (const auto* odd : {"/", "//", "/a//", "//a/", "/a/./", "/a/%2f"})
      EXPECT_EQ(status(parse(method, odd, with_claim({}))), 400U) << method << " " << odd;
  }
  for (const auto* method : {"PUT", "POST", "PATCH", "DELETE", "PROPPATCH", "LOCK", "UNLOCK", "MOVE", "COPY"})
    EXPECT_EQ(status(parse(method, "/a/", with_claim({{"Destination", "/b"}}))), 400U) << method;
}

TEST(OperationTest, EveryWriteNeedsAToken) {
  for (const auto* method :
       {"PUT", "POST", "PATCH", "DELETE", "MKCOL", "PROPPATCH", "LOCK", "UNLOCK", "MOVE", "COPY"}) {
    const auto parsed = parse(method, "/a", {{"Destination", "/b"}});
    EXPECT_EQ(status(parsed), 428U) << method;
    EXPECT_EQ(std::get<Rejection>(parsed).why, Rejection::Why::missing);
  }
  EXPECT_EQ(status(parse("PUT", "/a", with_claim({}))), 0U);
}

TEST(OperationTest, AMethodThatIsNotKnownIs405EvenWithAToken) {
  for (const auto* method : {"TRACE", "CONNECT", "get", "PURGE", "MKCALENDAR", "PUTX"}) {
    const auto parsed = parse(method, "/a", with_claim({}));
    EXPECT_EQ(status(parsed), 405U) << method;
    EXPECT_THAT(std::string{*std::get<Rejection>(parsed).response.fields.single("Allow")},
                HasSubstr("PROPFIND"));
  }
}

TEST(OperationTest, AMethodOverrideChangesNothingOfTheJudgement) {
  for (const auto* name : {"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"}) {
    EXPECT_FALSE(std::get<Operation>(parse("GET", "/a", {{name, "PUT"}})).is_write());
    EXPECT_EQ(status(parse("POST", "/a", {{name, "GET"}})), 428U);
  }
}

TEST(OperationTest, MovesAreJudgedByBothClaimsInTheOrderOfTheirNames) {
  const Pairs second{
      {"Destination", "/a"}, {"Fencing-Destination-Token", "5"}, {"Fencing-Destination-Holder", "d"}};
  const auto operation = std::get<Operation>(parse("MOVE", "/b", with_claim(second)));
  ASSERT_EQ(operation.claims.size(), 2U);
  EXPECT_EQ(operation.claims[0], (Claim{Resource{"a"}, Token{5}, Holder{"d"}, {}}));
  EXPECT_EQ(operation.claims[1], (Claim{Resource{"b"}, Token{34}, Holder{"h"}, {}}));
  EXPECT_EQ(operation.own, 1U);
  EXPECT_EQ(operation.destination->path, "/a");
  EXPECT_EQ(std::get<Operation>(parse("COPY", "/A", with_claim(second))).own, 0U);
}

TEST(OperationTest, AMoveWithoutTheSecondClaimIsMissingIt) {
  EXPECT_EQ(status(parse("MOVE", "/a", with_claim({{"Destination", "/b"}}))), 428U);
  EXPECT_EQ(status(parse("MOVE", "/a", {{"Destination", "/b"}, {"Fencing-Destination-Token", "1"}})), 428U);
}

TEST(OperationTest, WithinOneResourceOneClaimSufficesAndTwoMustBeTheSame) {
  const auto within = [](Pairs fields) {
    fields.emplace_back("Destination", "/a/y");
    return parse("MOVE", "/a/x", with_claim(std::move(fields)), 1);
  };
  EXPECT_EQ(std::get<Operation>(within({})).claims.size(), 1U);
  const auto same = within({{"Fencing-Destination-Token", "34"}, {"Fencing-Destination-Holder", "h"}});
  EXPECT_EQ(std::get<Operation>(same).claims.size(), 1U);
  EXPECT_EQ(status(within({{"Fencing-Destination-Token", "35"}, {"Fencing-Destination-Holder", "h"}})), 400U);
  EXPECT_EQ(status(within({{"Fencing-Destination-Token", "34"}, {"Fencing-Destination-Holder", "i"}})), 400U);
}

TEST(OperationTest, DestinationFieldsThatMeanNothingHereAreMalformed) {
  const Pairs good{{"Destination", "/b"}, {"Fencing-Destination-Token", "5"}};
  const auto with = [&](Pairs more) {
    more.insert(more.end(), good.begin(), good.end());
    return status(parse("COPY", "/a", with_claim(more)));
  };
  EXPECT_EQ(with({}), 0U);
  EXPECT_EQ(with({{"Destination", "/c"}}), 400U);
  EXPECT_EQ(with({{"Fencing-Destination-Token", "6"}}), 400U);
  EXPECT_EQ(with({{"Fencing-Destination-Sequence", "6"}}), 400U);
  EXPECT_EQ(with({{"Fencing-Destination-Else", "6"}}), 400U);
  for (const auto* odd :
       {"Fencing_Destination_Holder", "Fencing.Destination-Holder", "fencing-destination~holder"})
    EXPECT_EQ(with({{odd, "d"}}), 400U) << odd;
  EXPECT_EQ(status(parse("PUT", "/a", with_claim({{"Fencing-Destination-Token", "6"}}))), 400U);
  EXPECT_EQ(status(parse("COPY", "/a", with_claim({{"Fencing-Destination-Token", "6"}}))), 400U);
}

TEST(OperationTest, AConditionThatIsNoneIsMalformed) {
  for (const auto* odd :
       {"", " ", "<http://guard/a>", "(", "(<u:1>", "(<u:1)", "([\"a)", "x", "(<u:1>) x", "<", "<a",
        "</a/../b> (<u:1>)", "<//other/a> (<u:1>)", "<http://guard/%2f> (<u:1>)", ") (", "\"a\""})
    EXPECT_EQ(status(parse("PUT", "/a", with_claim({{"If", odd}}))), 400U) << odd;
  EXPECT_EQ(status(parse("PUT", "/a", with_claim({{"If", "(<u:1>)"}, {"if", "(<u:2>)"}}))), 400U);
  for (const auto* fine : {"(<u:1>)", "</> (<u:1>)", "</a/b/> (<u:1>)", "<other> (<u:1>)", "()"})
    EXPECT_EQ(status(parse("PUT", "/a", with_claim({{"If", fine}}))), 0U) << fine;
}

TEST(OperationTest, MalformedClaimsAre400) {
  EXPECT_EQ(status(parse("PUT", "/a", {{"Fencing-Token", "034"}})), 400U);
  EXPECT_EQ(status(parse("GET", "/a", {{"Fencing-Holder", "h"}})), 400U);
  EXPECT_EQ(status(parse("PUT", "/a", {{"Fencing-Token", "1"}, {"Fencing-Token", "2"}})), 400U);
  EXPECT_EQ(status(parse("PUT", "/a/../b", with_claim({}))), 400U);
}

}  // namespace
}  // namespace fenceguard::proxy
