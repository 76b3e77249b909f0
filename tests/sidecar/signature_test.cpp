// Signed claims through a running sidecar: who was not granted a token cannot use one, and moves no fence.

#include "server/data/signature.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <boost/json/value.hpp>
#include <fstream>

#include "guard/claim_keys.hpp"
#include "tests/sidecar/running.hpp"

namespace fenceguard::test {
namespace {

const std::string first = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
const std::string second = "QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8";
const std::string lease_members = R"("resource": "accounts/42", "holder": "mine", "ttl_ms": 600000)";

class SignatureTest : public testing::Test {
 protected:
  void SetUp() override { start(true); }

  // A file of keys, which only its owner may read.
  std::string write(const std::string& name, const std::string& lines) const {
    const auto path = folder.file(name);
    std::ofstream{path} << lines;
    chmod(path.c_str(), 0600);
    return path;
  }

  void start(bool is_required) {
    RunningOptions options;
    options.sidecar.claim_key_file = write("keys", "old " + first + "\n");
    options.sidecar.require_signature = is_required;
    running.emplace(std::move(options));
  }

  std::string sign(const std::string& key_line, const Claim& claim,
                   const std::string& space = "fenceguard") const {
    return ClaimKeys::from_file(write("other-keys", key_line), space).sign(claim);
  }

  static Pairs fields_of(const Claim& claim, const std::string& signature) {
    auto fields = claim_fields(claim.token.value(), claim.holder.id());
    fields.emplace_back("Fencing-Signature", signature);
    return fields;
  }

  // A lease of 'accounts/42' as a claim with its signature.
  Pairs granted() {
    const auto response = running->acquire(lease_members);
    auto fields = granted_claim(response);
    fields.emplace_back("Fencing-Signature", field(response, "Fencing-Signature"));
    return fields;
  }

  std::string fence() const { return running->control("GET", "/v1/fences/accounts/42").body; }

  const test::TempDir folder;
  std::optional<Running> running;
};

Claim claim_in(const Pairs& fields) {
  return {Resource{"accounts/42"}, *Token::parse(fields.at(0).second), Holder{fields.at(1).second}, {}};
}

TEST_F(SignatureTest, ALeaseCarriesTheSignatureOfItsClaim) {
  const auto fresh = running->acquire(lease_members);
  ASSERT_EQ(fresh.status, 201U);
  const auto expected = sign("old " + first, claim_in(granted_claim(fresh)));
  EXPECT_EQ(field(fresh, "Fencing-Signature"), expected);
  EXPECT_EQ(std::string{json_of(fresh).at("signature").as_string()}, expected);
  const auto again = running->acquire(lease_members);
  EXPECT_EQ(again.status, 200U);
  EXPECT_EQ(field(again, "Fencing-Signature"), expected);
  EXPECT_EQ(running->control("GET", "/v1/leases/accounts/42").body.find("signature"), std::string::npos);
}

TEST_F(SignatureTest, ASignedClaimIsAsGoodAsEver) {
  const auto claim = granted();
  EXPECT_EQ(running->data("PUT", "/accounts/42", claim, "70").status, 201U);
  EXPECT_EQ(running->data("GET", "/accounts/42", claim).body, "70");
  EXPECT_EQ(running->data("HEAD", "/accounts/42", claim).status, 200U);
  EXPECT_EQ(running->control("POST", "/v1/fences/accounts/42/advance", {}, claim).status, 200U);
  const auto body = R"({"token": ")" + claim[0].second + R"(", "holder": "mine", "signature": ")" +
                    claim[2].second + R"("})";
  EXPECT_EQ(running->control("POST", "/v1/fences/accounts/42/advance", body).status, 200U);
  EXPECT_EQ(running->control("PUT", "/v1/leases/accounts/42", R"({"ttl_ms": 700000})", claim).status, 200U);
  EXPECT_EQ(running->data("DELETE", "/accounts/42", claim).status, 204U);
  EXPECT_EQ(running->release("accounts/42", claim).status, 204U);
}

TEST_F(SignatureTest, WhatNeedsNoTokenNeedsNoSignature) {
  const auto claim = granted();
  EXPECT_EQ(running->data("PUT", "/accounts/42", claim, "70").status, 201U);
  EXPECT_EQ(running->data("GET", "/accounts/42").body, "70");
  EXPECT_EQ(running->data("PUT", "/accounts/42", {}, "71").status, 428U);
}

TEST_F(SignatureTest, AClaimThatIsNotSignedAsItStandsIsRefusedAndMovesNoFence) {
  // Every kind of wrong signature, on everything that takes a claim, with a token far above the lease's.
  const auto lease = granted();
  ASSERT_EQ(running->data("PUT", "/accounts/42", lease, "70").status, 201U);
  const auto before = fence();
  const Claim mine = claim_in(lease);
  const Claim forged{mine.resource, Token{1'000'000}, mine.holder, {}};
  const auto good = sign("old " + first, forged);
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"none", ""},
      {"no key's", "old."},
      {"another token's", lease[2].second},
      {"a wrong key's", sign("old " + second, forged)},
      {"a wrong key's name", sign("new " + first, forged)},
      {"another resource's",
       sign("old " + first, {Resource{"accounts/43"}, forged.token, forged.holder, {}})},
      {"another holder's", sign("old " + first, {forged.resource, forged.token, Holder{"his"}, {}})},
      {"another namespace's", sign("old " + first, forged, "elsewhere")},
      {"a longer one", good + "A"},
      {"a shorter one", good.substr(0, good.size() - 1)},
  };
  for (const auto& [what, signature] : wrong) {
    auto fields = claim_fields(forged.token.value(), forged.holder.id());
    if (what != "none") fields.emplace_back("Fencing-Signature", signature);
    const std::vector<http::Response> answers{
        running->data("PUT", "/accounts/42", fields, "71"),
        running->data("DELETE", "/accounts/42", fields),
        running->data("GET", "/accounts/42", fields),
        running->control("POST", "/v1/fences/accounts/42/advance", {}, fields),
        running->control("POST", "/v1/fences/accounts/42/advance",
                         R"({"token": "1000000", "holder": "mine", "signature": ")" + signature + R"("})"),
        running->control("PUT", "/v1/leases/accounts/42", R"({"ttl_ms": 700000})", fields),
        running->release("accounts/42", fields)};
    for (const auto& answer : answers) {
      EXPECT_EQ(answer.status, 401U) << what;
      EXPECT_EQ(problem_of(answer), "unsigned") << what;
      EXPECT_EQ(field(answer, "Fencing-Verdict"), "unsigned") << what;
      EXPECT_FALSE(field(answer, "WWW-Authenticate").empty());
      EXPECT_THAT(answer.body, testing::Not(testing::HasSubstr("mine")));
    }
    EXPECT_EQ(running->data("HEAD", "/accounts/42", fields).status, 401U) << what;
  }
  EXPECT_EQ(fence(), before);
  EXPECT_EQ(running->metric(R"(fenceguard_verdicts_total{storage="sqlite",verdict="unsigned"})"), 80);
  EXPECT_EQ(running->data("GET", "/accounts/42").body, "70");
  EXPECT_EQ(running->release("accounts/42", lease).status, 204U);
}

TEST_F(SignatureTest, ALeaseIsNeitherRenewedNorReleasedWithoutItsSignature) {
  // Whoever overheard token and holder has the whole claim, but not its signature.
  const auto lease = granted();
  const Pairs overheard{lease[0], lease[1]};
  EXPECT_EQ(running->control("PUT", "/v1/leases/accounts/42", {}, overheard).status, 401U);
  EXPECT_EQ(running->release("accounts/42", overheard).status, 401U);
  EXPECT_TRUE(running->lease("accounts/42"));
}

TEST_F(SignatureTest, AForgedHighestTokenLocksNobodyOut) {
  const auto lease = granted();
  const auto forged = claim_fields(9223372036854775807, "mine");
  EXPECT_EQ(running->data("PUT", "/accounts/42", forged, "mine for ever").status, 401U);
  EXPECT_EQ(running->control("POST", "/v1/fences/accounts/42/advance", {}, forged).status, 401U);
  EXPECT_EQ(running->data("PUT", "/accounts/42", lease, "70").status, 201U);
}

TEST_F(SignatureTest, AFieldThatIsRepeatedOrStandsAloneIsMalformed) {
  auto lease = granted();
  const Pairs alone{lease[2]};
  EXPECT_EQ(running->data("GET", "/accounts/42", alone).status, 400U);
  EXPECT_EQ(running->control("POST", "/v1/fences/accounts/42/advance", R"({"signature": "a.b"})").status,
            400U);
  lease.push_back(lease[2]);
  EXPECT_EQ(running->data("PUT", "/accounts/42", lease, "70").status, 400U);
  EXPECT_EQ(running->release("accounts/42", lease).status, 400U);
}

TEST_F(SignatureTest, KeysChangeWithTwoValidAtATime) {
  const auto lease = granted();
  write("keys", "new " + second + "\nold " + first + "\n");
  running->sidecar().reload_keys();
  EXPECT_EQ(running->data("PUT", "/accounts/42", lease, "70").status, 201U);
  // What is asked for again, and what is renewed, is signed anew.
  const auto fresh = granted();
  EXPECT_TRUE(fresh[2].second.starts_with("new."));
  const auto renewed = running->control("PUT", "/v1/leases/accounts/42", {}, lease);
  EXPECT_EQ(field(renewed, "Fencing-Signature"), fresh[2].second);
  write("keys", "new " + second + "\n");
  running->sidecar().reload_keys();
  EXPECT_EQ(running->data("PUT", "/accounts/42", lease, "71").status, 401U);
  EXPECT_EQ(running->data("PUT", "/accounts/42", fresh, "71").status, 204U);
}

TEST_F(SignatureTest, OldKeysStayWhereTheFileIsBad) {
  const auto lease = granted();
  write("keys", "old\n");
  EXPECT_THROW(running->sidecar().reload_keys(), InvalidInput);
  EXPECT_EQ(running->data("PUT", "/accounts/42", lease, "70").status, 201U);
}

TEST_F(SignatureTest, WhereNoneIsAskedForNoneIsChecked) {
  start(false);
  const auto lease = granted();
  EXPECT_TRUE(lease[2].second.starts_with("old."));
  EXPECT_EQ(running->data("PUT", "/accounts/42", {lease[0], lease[1]}, "70").status, 201U);
  EXPECT_EQ(running->data("PUT", "/accounts/42", fields_of(claim_in(lease), "old.wrong"), "70").status, 204U);
}

TEST(Signature, AskingForItWithoutKeysIsASentence) {
  RunningOptions options;
  options.sidecar.require_signature = true;
  EXPECT_THAT([&] { Running{std::move(options)}; },
              testing::ThrowsMessage<InvalidInput>(testing::HasSubstr("--claim-key")));
}

TEST(Signature, ASecondClaimHasAFieldOfItsOwn) {
  const test::TempDir folder;
  std::ofstream{folder.file("keys")} << "old " << first;
  chmod(folder.file("keys").c_str(), 0600);
  const auto keys = ClaimKeys::from_file(folder.file("keys"), "fenceguard");
  const Claim claim{Resource{"b"}, Token{2}, Holder{"mine"}, {}};
  http::Fields fields;
  fields.add("Fencing-Signature", "old.of-the-first-claim");
  fields.add("Fencing-Destination-Signature", keys.sign(claim));
  EXPECT_FALSE(check_signature(&keys, claim, fields, destination_signature_field));
  EXPECT_EQ(check_signature(&keys, claim, fields).value().status, 401U);
  EXPECT_FALSE(check_signature(nullptr, claim, fields));
}

}  // namespace
}  // namespace fenceguard::test
