#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters/etcd/address.hpp"
#include "adapters/etcd/lock/lock_name.hpp"
#include "adapters/etcd/lock/queue_entry.hpp"
#include "adapters/etcd/wire/base64.hpp"
#include "adapters/etcd/wire/endpoints.hpp"
#include "adapters/etcd/wire/errors.hpp"
#include "adapters/etcd/wire/messages.hpp"
#include "guard/error.hpp"

namespace fenceguard::etcd {
namespace {

using testing::ElementsAre;

Address address(const std::string& url) {
  return address_of(Url::parse(url));
}

TEST(EtcdAddress, HasEndpointsAndAPrefix) {
  const auto plain = address("etcd://h1,h2:4001,[::1]/app/locks");
  EXPECT_THAT(plain.endpoints, ElementsAre("http://h1:2379", "http://h2:4001", "http://[::1]:2379"));
  EXPECT_EQ(plain.prefix, "app/locks");
  EXPECT_EQ(address("etcd://h1").prefix, "fenceguard");
  EXPECT_EQ(address("etcd://h1//registry/").prefix, "/registry");
}

TEST(EtcdAddress, SpeaksTlsWhereAnyOfItsParametersSaysSo) {
  EXPECT_THAT(address("etcd://h1?tls=1").endpoints, ElementsAre("https://h1:2379"));
  EXPECT_TRUE(address("etcd://h1?cacert=/ca.crt").tls.is_on);
  EXPECT_EQ(address("etcd://h1?server_name=etcd.local").tls.server_name, "etcd.local");
  EXPECT_THROW((void)address("etcd://h1?tls=0&cacert=/ca.crt"), InvalidInput);
  EXPECT_THROW((void)address("etcd://h1?cert=/c.crt"), InvalidInput);
}

TEST(EtcdAddress, RefusesWhatItDoesNotUnderstandAndShowsNoPassword) {
  for (const char* url : {"etcd://h1:", "etcd://h1:0", "etcd://h1:65536", "etcd://h1,", "etcd://:2379",
                          "etcd://h1?nothing=1", "etcd://h1?timeout=1ms", "etcd://:secret@h1",
                          "etcd://h1/a/lock", "etcd://h1/fence/b", "etcd://h1/a//b"}) {
    EXPECT_THROW((void)address(url), InvalidInput) << url;
  }
  EXPECT_EQ(address("etcd://user:secret@h1").shown.find("secret"), std::string::npos);
}

TEST(EtcdBase64, ReadsWhatItWrites) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
    bytes += static_cast<char>(i * 37);
  }
  EXPECT_EQ(to_base64("ab"), "YWI=");
  EXPECT_FALSE(from_base64("YW"));
  EXPECT_FALSE(from_base64("Y!I="));
}

TEST(EtcdEndpoints, PutsAsideWhatFailedAndStaysWithWhatAnswered) {
  using std::chrono::seconds;
  Endpoints endpoints{3};
  const Endpoints::Time now{seconds{1'000}};
  EXPECT_THAT(endpoints.order(now), ElementsAre(0, 1, 2));
  endpoints.failed(0, now);
  EXPECT_THAT(endpoints.order(now), ElementsAre(1, 2, 0));
  endpoints.answered(1, now);
  endpoints.failed(2, now + seconds{1});
  EXPECT_THAT(endpoints.order(now + seconds{1}), ElementsAre(1, 0, 2));
  // The first one is tried again only when the present one fails.
  EXPECT_THAT(endpoints.order(now + 2 * Endpoints::aside_for), ElementsAre(1, 2, 0));
  endpoints.failed(1, now + seconds{2});
  EXPECT_THAT(endpoints.order(now + seconds{2}), ElementsAre(0, 2, 1));
}

// A write of which only the server can say that it did nothing is unknown for anything else that it says.
TEST(EtcdErrors, AreUnknownForAWriteUnlessTheyCertainlyDidNothing) {
  const auto kind = [](const char* text, int code, bool writes = true) {
    return fault_of("a call", {503, code, text}, writes).kind;
  };
  for (const char* text :
       {"etcdserver: request timed out", "etcdserver: request timed out, possibly due to connection lost",
        "etcdserver: leader changed", "etcdserver: no leader", "etcdserver: server stopped",
        "etcdserver: mvcc: database space exceeded", "context deadline exceeded", ""}) {
    EXPECT_EQ(kind(text, 14), FaultKind::unknown) << text;
    EXPECT_EQ(kind(text, 14, false), FaultKind::unavailable) << text;
  }
  for (const char* text :
       {"etcdserver: too many requests", "etcdserver: permission denied", "etcdserver: user name is empty",
        "etcdserver: authentication failed, invalid user ID or password", "etcdserver: invalid auth token",
        "etcdserver: requested lease not found"}) {
    EXPECT_EQ(kind(text, 3), FaultKind::unavailable) << text;
  }
  EXPECT_EQ(kind("etcdserver: duplicate key given in txn request", 3), FaultKind::invalid_input);
  EXPECT_EQ(fault_of("a call", {404, 0, ""}, true).kind, FaultKind::unavailable);
}

TEST(EtcdMessages, HoldNumbersAsStringsAndBytesAsBase64) {
  Op range = get_all("a");
  range.limit = 1;
  const auto text = txn_request({{created_at("k", 9'007'199'254'740'993)}, {put("k", "v", 7)}, {range}});
  EXPECT_THAT(text, testing::HasSubstr(R"("create_revision":"9007199254740993")"));
  EXPECT_THAT(text, testing::HasSubstr(R"("key":"aw==","value":"dg==","lease":"7")"));
  EXPECT_THAT(text, testing::HasSubstr(R"("range_end":"Yg==","limit":"1")"));
  const auto answer = txn_answer(parse_object(
      R"({"header":{"revision":"9007199254740993","raft_term":"3"},"succeeded":true,"responses":[)"
      R"({"response_range":{"kvs":[{"key":"aw==","create_revision":"5","value":"dg=="}],"count":"1"}}]})"));
  EXPECT_TRUE(answer.succeeded);
  EXPECT_EQ(answer.revision, 9'007'199'254'740'993);
  EXPECT_EQ(answer.term, 3);
  EXPECT_EQ(answer.answers.at(0).found.at(0).value, "v");
  EXPECT_EQ(answer.answers.at(0).found.at(0).lease, 0);
  EXPECT_ANY_THROW((void)txn_answer(parse_object(R"({"succeeded":true})")));
  EXPECT_EQ(end_of_prefix("a\xff"), "b");
}

TEST(EtcdLockName, IsThatOfEtcdctlAndKeepsResourcesApart) {
  const LockName own{"fenceguard", ""};
  EXPECT_EQ(own.of(Resource{"accounts/42"}), "fenceguard/lock/accounts%2F42/");
  EXPECT_NE(own.of(Resource{"a%2Fb"}), own.of(Resource{"a/b"}));
  const LockName shared{"fenceguard", "their/%s/lock"};
  EXPECT_EQ(shared.of(Resource{"accounts/42"}), "their/accounts/42/lock/");
  EXPECT_THROW((LockName{"fenceguard", "their/lock"}), InvalidInput);
  EXPECT_THROW((void)(LockName{"fenceguard", "fenceguard/%s"}.of(Resource{"fence/a"})), InvalidInput);
  EXPECT_EQ(lease_in_key(0x00ab'cdef), "abcdef");
}

TEST(EtcdQueueEntry, IsOursWhereItNamesAHolderAndAnOffset) {
  KeyValue key;
  key.create_revision = 10;
  key.value = granted_value(Holder{"h"}, 5);
  EXPECT_EQ(QueueEntry{key}.holder, Holder{"h"});
  EXPECT_EQ(QueueEntry{key}.token(99), Token{15});
  key.value = granted_value(Holder{}, 5);
  EXPECT_EQ(QueueEntry{key}.holder, Holder{});
  // Whoever waits has the offset of when its turn comes.
  key.value = waiting_value(Holder{"h"});
  EXPECT_EQ(QueueEntry{key}.holder, Holder{"h"});
  EXPECT_FALSE(QueueEntry{key}.is_granted());
  EXPECT_EQ(QueueEntry{key}.token(99), Token{109});
  for (const char* foreign : {"", "h", "h 05", "h h 5", "h -1"}) {
    key.value = foreign;
    EXPECT_FALSE(QueueEntry{key}.holder) << foreign;
    EXPECT_EQ(QueueEntry{key}.token(99), Token{109});
  }
}

}  // namespace
}  // namespace fenceguard::etcd
