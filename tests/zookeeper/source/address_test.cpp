#include "adapters/zookeeper/address.hpp"

#include <gtest/gtest.h>

#include "guard/error.hpp"

namespace fenceguard::zookeeper {
namespace {

Address of(const std::string& url) {
  return address_of(Url::parse(url));
}

TEST(Address, HostsGetTheUsualPortAndTheRootItsDefault) {
  EXPECT_EQ(of("zookeeper://h1,h2:2182,[::1]:2183").hosts, "h1:2181,h2:2182,[::1]:2183");
  EXPECT_EQ(of("zookeeper://[::1]").hosts, "[::1]:2181");
  EXPECT_EQ(of("zookeeper://h1").root, "/fenceguard");
  EXPECT_EQ(of("zookeeper://h1/").root, "/fenceguard");
  EXPECT_EQ(of("zookeeper://h1/app/locks/").root, "/app/locks");
}

TEST(Address, WithAUserNodesBelongToTheCreatorUnlessTheUrlSaysOtherwise) {
  EXPECT_EQ(of("zookeeper://h1").acl, Acl::open);
  EXPECT_EQ(of("zookeeper://ann:secret@h1").acl, Acl::creator);
  EXPECT_EQ(of("zookeeper://ann:secret@h1?acl=read").acl, Acl::read);
  EXPECT_EQ(of("zookeeper://ann:secret@h1?acl=open").acl, Acl::open);
  EXPECT_THROW(of("zookeeper://h1?acl=creator"), InvalidInput);
  EXPECT_THROW(of("zookeeper://ann:secret@h1?acl=all"), InvalidInput);
}

TEST(Address, TimesAreReadAndBounded) {
  const auto address = of("zookeeper://h1?session_timeout=3s&timeout=250ms");
  EXPECT_EQ(address.session_timeout, std::chrono::milliseconds{3'000});
  EXPECT_EQ(address.timeout, std::chrono::milliseconds{250});
  EXPECT_FALSE(of("zookeeper://h1").session_timeout);
  EXPECT_THROW(of("zookeeper://h1?timeout=1ms"), InvalidInput);
  EXPECT_THROW(of("zookeeper://h1?session_timeout=soon"), InvalidInput);
}

TEST(Address, WhatIsNoAddressIsRefusedAndNoMessageHoldsThePassword) {
  for (const std::string url :
       {"zookeeper:///x", "zookeeper://h1,,h2", "zookeeper://h1:0", "zookeeper://h1:70000",
        "zookeeper://h1:x", "zookeeper://[::1", "zookeeper://h1/a//b", "zookeeper://h1/a/../b",
        "zookeeper://h1/zookeeper/x", "zookeeper://h1/zookeeper", "zookeeper://h1/a%01b",
        "zookeeper://h1?color=red", "zookeeper://a%3Ab:c@h1"}) {
    EXPECT_THROW(of(url), InvalidInput) << url;
  }
  try {
    (void)of("zookeeper://ann:hunter2@h1?color=red");
    FAIL();
  } catch (const InvalidInput& fault) {
    EXPECT_EQ(std::string{fault.what()}.find("hunter2"), std::string::npos);
  }
  EXPECT_EQ(of("zookeeper://ann:hunter2@h1").shown.find("hunter2"), std::string::npos);
}

}  // namespace
}  // namespace fenceguard::zookeeper
