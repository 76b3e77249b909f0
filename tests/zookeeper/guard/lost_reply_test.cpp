// The connection breaks at the first frame, at the second, ... until a run passes: nothing is ever told that
// is not so.

#include <gtest/gtest.h>

#include "guard/error.hpp"
#include "tests/conformance/until_answered.hpp"
#include "tests/zookeeper/frames.hpp"
#include "tests/zookeeper/guard/space.hpp"

namespace fenceguard::test {
namespace {

constexpr int frames_max = 200;

enum class Ending { took_effect, refused, nothing, unknown };

template <class Function>
Ending ending_of(const Function& function) {
  try {
    return function() ? Ending::took_effect : Ending::refused;
  } catch (const OutcomeUnknown&) {
    return Ending::unknown;
  } catch (const Unavailable&) {
    return Ending::nothing;
  }
}

// What was told of a write, against whether its node is there.
void expect_true(Ending ending, bool is_there, const std::string& what) {
  if (ending == Ending::took_effect) {
    EXPECT_TRUE(is_there) << what << " was acknowledged and is not there";
  }
  if (ending == Ending::refused || ending == Ending::nothing) {
    EXPECT_FALSE(is_there) << what << " was told not to have happened and is there";
  }
}

// A holder's first steps, its writes, a refusal of its own operation, and the one who takes over.
void tell_story(Space& space, const std::string& url) {
  zookeeper::Client client{url};
  zookeeper::Guard guard{client};
  const auto made = [&](const Claim& claim, const char* name) {
    return ending_of([&] {
      const auto written = guard.write(claim, {zookeeper::create(space.data(name), name)});
      EXPECT_EQ(written.ruling.verdict, Verdict::admitted) << name;
      return written.took_effect();
    });
  };
  const auto there = [&](const char* name) {
    return space.get(space.data(name)).code == zookeeper::Code::ok;
  };
  const auto first = claim_of("r", 10, "first");
  const auto advanced = ending_of([&] { return guard.advance(first).verdict == Verdict::admitted; });
  if (advanced == Ending::took_effect) {
    EXPECT_EQ(space.fence(first.resource).record->token, Token{10});
  }
  const auto a = made(first, "a");
  expect_true(a, there("a"), "a");
  const auto b = made(first.with(Sequence{1}), "b");
  expect_true(b, there("b"), "b");
  // Its node is there by now, or the write before it was lost.
  const auto again = made(claim_of("r", 11, "second"), "a");
  if (again == Ending::refused) {
    EXPECT_EQ(space.fence(first.resource).record->token, Token{11}) << "an admitted token stays";
  }
  const auto read = ending_of([&] {
    const auto seen = guard.read(claim_of("r", 12, "third"), space.data("b"));
    EXPECT_EQ(seen.ruling.verdict, Verdict::admitted);
    EXPECT_EQ(seen.answer->code == zookeeper::Code::ok, there("b"));
    return true;
  });
  if (read == Ending::took_effect) {
    EXPECT_EQ(space.fence(first.resource).record->token, Token{12});
  }
  // By now nobody is certain what became of all this, but for who is newest.
  if (read == Ending::took_effect) {
    const auto stale = ending_of([&] {
      const auto written = guard.write(first, {zookeeper::create(space.data("late"), "")});
      EXPECT_EQ(written.ruling.verdict, Verdict::stale);
      return written.took_effect();
    });
    EXPECT_NE(stale, Ending::took_effect);
    EXPECT_NE(stale, Ending::unknown) << "a refusal writes nothing";
  }
  EXPECT_FALSE(there("late"));
}

void cut_everywhere(Proxy::Direction direction) {
  for (int frame = 1; frame < frames_max; ++frame) {
    SCOPED_TRACE("frame " + std::to_string(frame));
    Space space;
    MessageCut cut{frames()};
    cut.arm(direction, frame - 1);
    const Proxy proxy{shared_ensemble().node(0).port(), cut.filter()};
    tell_story(space, space.url_by(proxy.port()));
    if (testing::Test::HasFailure()) return;
    if (!cut.has_cut()) {
      EXPECT_GT(frame, 10) << "the story is longer than that";
      return;
    }
  }
  FAIL() << "no run passed";
}

TEST(LostReplies, ALostRequestNeverYieldsAFalseAnswer) {
  cut_everywhere(Proxy::Direction::to_server);
}

TEST(LostReplies, ALostReplyNeverYieldsAFalseAnswer) {
  cut_everywhere(Proxy::Direction::to_client);
}

// A server that goes silent: the write's end is not known, and it is not sent again.
TEST(LostReplies, AWriteThatIsNotAnsweredInTimeIsUnknownAndIsWrittenAtMostOnce) {
  Space space;
  Proxy proxy{shared_ensemble().node(0).port()};
  zookeeper::Client client{space.url_by(proxy.port(), "?timeout=5s&session_timeout=30s")};
  zookeeper::Guard guard{client};
  const auto log = space.data("log-");
  const auto claim = claim_of("r", 5);
  const std::vector<zookeeper::Op> ops{zookeeper::create(log, "", zookeeper::Mode::persistent_sequential)};
  ASSERT_TRUE(guard.write(claim, ops).took_effect());
  proxy.set(Proxy::Way::silent);
  EXPECT_THROW((void)guard.write(claim, ops), OutcomeUnknown);
  proxy.set(Proxy::Way::open);
  EXPECT_TRUE(guard.write(claim, ops).took_effect());
  const auto session = space.session();
  (void)space.get(log);
  EXPECT_EQ(session->get_children(space.data("")).children.size(), 3u);
}

// One write of unknown end, and the same with its sequence again: one effect.
TEST(LostReplies, UnknownWriteRepeatedWithItsSequenceTakesEffectOnce) {
  Space space;
  Proxy proxy{shared_ensemble().node(0).port()};
  zookeeper::Client client{space.url_by(proxy.port(), "?timeout=1s&session_timeout=30s")};
  zookeeper::Guard guard{client};
  const std::vector<zookeeper::Op> ops{
      zookeeper::create(space.data("log-"), "", zookeeper::Mode::persistent_sequential)};
  // Each call may be repeated. An answer within a second is too much to ask for of every one.
  ASSERT_EQ(until_answered([&] { return guard.advance(claim_of("r", 5)); }).verdict, Verdict::admitted);
  for (int i = 1; i <= 3; ++i) {
    const auto claim = claim_of("r", 5).with(Sequence{i});
    proxy.set(Proxy::Way::silent);
    EXPECT_THROW((void)guard.write(claim, ops), OutcomeUnknown);
    proxy.set(Proxy::Way::open);
    const auto again = until_answered([&] { return guard.write(claim, ops); });
    EXPECT_TRUE(again.took_effect() || again.ruling.verdict == Verdict::duplicate);
    (void)space.get(space.data(""));
    EXPECT_EQ(space.session()->get_children(space.data("")).children.size(), static_cast<std::size_t>(i));
  }
}

}  // namespace
}  // namespace fenceguard::test
