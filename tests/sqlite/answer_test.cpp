// Each work of a shared transaction is answered exactly once, whatever the others' receivers do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>

#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

using testing::ElementsAre;

class Answers : public testing::Test {
 protected:
  // Both are queued while the committer is busy, so that one transaction has them.
  void advance_together(const Claim& first, Done<Ruling> first_done, const Claim& second,
                        Done<Ruling> second_done) {
    std::promise<void> queued;
    storage_.fences().advance(claim_of("other", 1), [&](const auto&) { queued.get_future().wait(); });
    storage_.fences().advance(first, std::move(first_done));
    storage_.fences().advance(second, std::move(second_done));
    queued.set_value();
    storage_.close();  // answers what is open
  }

  const TempDir folder_;
  OpenStorage storage_{folder_.file("fences.db")};
};

TEST_F(Answers, AReceiverThatThrowsNeitherHearsTwiceNorTakesTheOthersAnswers) {
  int thrown = 0;
  std::vector<std::string> heard;
  advance_together(
      claim_of("a", 1),
      [&](const Outcome<Ruling>&) {
        ++thrown;
        throw std::runtime_error{"no memory for the answer"};
      },
      claim_of("b", 1),
      [&](const Outcome<Ruling>& outcome) {
        heard.emplace_back(outcome.ok() ? to_string(outcome.value().verdict) : outcome.fault().message);
      });
  EXPECT_EQ(thrown, 1);
  EXPECT_THAT(heard, ElementsAre("admitted"));
}

}  // namespace
}  // namespace fenceguard::test
