#include "server/http/wire/message.hpp"

#include <gtest/gtest.h>

namespace fenceguard::http {
namespace {

TEST(Fields, NamesCompareWithoutRegardToCase) {
  Fields fields;
  fields.add("Fencing-Token", "34");
  EXPECT_EQ(fields.single("fencing-TOKEN"), "34");
  EXPECT_TRUE(fields.contains("FENCING-token"));
  EXPECT_FALSE(fields.contains("Fencing-Toke"));
  EXPECT_FALSE(fields.single("Fencing-Tokens"));
}

TEST(Fields, RepeatedFieldIsNotSingle) {
  Fields fields;
  fields.add("A", "1");
  fields.add("a", "1");
  EXPECT_FALSE(fields.single("A"));
  EXPECT_EQ(fields.count("A"), 2U);
}

TEST(Fields, KeepTheirOrder) {
  Fields fields;
  fields.add("B", "1");
  fields.add("A", "2");
  std::string order;
  for (const auto& [name, value] : fields) order += name + value;
  EXPECT_EQ(order, "B1A2");
}

}  // namespace
}  // namespace fenceguard::http
