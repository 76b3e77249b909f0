#include "server/products.hpp"

#include <gtest/gtest.h>

#include "guard/error.hpp"
#include "tests/guard/memory_source.hpp"

namespace fenceguard {
namespace {

ProductTable table() {
  Product memory;
  memory.schemes = {"memory", "mem"};
  memory.open_source = [](const Url&) { return std::make_unique<test::MemorySource>(); };
  Product bare;
  bare.schemes = {"bare"};
  return ProductTable{{memory, bare}};
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const InvalidInput& error) {
    return error.what();
  }
}

TEST(ProductTable, OpensWhatAnyOfTheNamesStandsFor) {
  EXPECT_TRUE(table().open_source(Url::parse("memory:x")));
  EXPECT_TRUE(table().open_source(Url::parse("MEM:x")));
}

TEST(ProductTable, AnUnknownSchemeListsTheKnownOnesAndNoPassword) {
  const auto message = refusal([] { (void)table().open_source(Url::parse("foo://joe:hunter2@host")); });
  for (const auto* word : {"foo", "memory", "mem", "bare"}) {
    EXPECT_NE(message.find(word), std::string::npos) << message;
  }
  EXPECT_EQ(message.find("hunter2"), std::string::npos) << message;
}

TEST(ProductTable, WhatAProductDoesNotOfferIsRefused) {
  const auto url = Url::parse("bare:x");
  EXPECT_NE(refusal([&] { (void)table().open_source(url); }), "");
  EXPECT_NE(refusal([&] { (void)table().open_storage(url, {}); }), "");
  EXPECT_NE(refusal([&] { (void)table().examine_source(url); }), "");
  EXPECT_NE(refusal([&] { (void)table().examine_storage(url); }), "");
}

}  // namespace
}  // namespace fenceguard
