// A database without space: etcd refuses what puts, and the guard still knows what is true of the fences.

#include "adapters/etcd/wire/errors.hpp"
#include "tests/etcd/guard/space.hpp"

namespace fenceguard::test {
namespace {

using etcd::put;

// Fills the database until a put is refused.
void fill(EtcdSpace& space) {
  const std::string piece(20'000, 'x');
  for (int i = 0; i < 1'000; ++i) {
    try {
      space.set(space.key(fmt::format("filler/{}", i)), piece);
    } catch (const etcd::OutOfSpace&) {
      return;
    } catch (const OutcomeUnknown&) {
      // It took too long.
    }
  }
  FAIL() << "the quota was never met";
}

TEST(EtcdGuardQuota, WithoutSpaceNothingIsWrittenAndThatIsKnown) {
  EtcdCluster cluster{1, {.arguments = {"--quota-backend-bytes", "500000"}}};
  EtcdSpace space{cluster};
  etcd::Guard guard{space.client()};
  const auto held = claim_of(5, "h", "r", 1);
  ASSERT_TRUE(guard.write(held, {put(space.key(), "1")}).is_done());
  ASSERT_NO_FATAL_FAILURE(fill(space));

  const auto next = held.with(Sequence{2});
  const auto refused = fault_of_call([&] { return guard.write(next, {put(space.key(), "2")}); });
  EXPECT_EQ(refused.kind, FaultKind::unavailable) << refused.message;
  EXPECT_NE(refused.message.find("space"), std::string::npos) << refused.message;
  EXPECT_EQ(kind_of([&] { return guard.advance(claim_of(6)); }), FaultKind::unavailable);
  EXPECT_EQ(space.fence() + space.value(), "5 1 open h1");
  // What needs no space has its answer, also from a guard that remembers nothing.
  etcd::Guard fresh{space.client()};
  for (auto* one : {&guard, &fresh}) {
    EXPECT_EQ(one->write(held, {put(space.key(), "1")}).ruling.verdict, Verdict::duplicate);
    EXPECT_EQ(one->write(claim_of(4, "old"), {put(space.key(), "x")}).ruling.verdict, Verdict::stale);
    EXPECT_EQ(one->read(claim_of(5), {etcd::get(space.key())}).answers.at(0).found.at(0).value, "1");
  }
  // The fence does not move, so it cannot tell whether the write took place.
  EXPECT_EQ(kind_of([&] { return guard.write(claim_of(5), {put(space.key(), "2")}); }), FaultKind::unknown);
  EXPECT_EQ(space.value(), "1");
}

}  // namespace
}  // namespace fenceguard::test
