// The embedded storage: objects with their fences, through its own calls.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

using testing::HasSubstr;

ObjectWrite put_of(const std::string& path, const std::string& body) {
  return {ObjectWrite::Kind::put, path, body, "text/plain", {}, {}};
}

Precondition tags(std::vector<std::string> etags) {
  return {false, std::move(etags)};
}

class EmbeddedStorage : public testing::Test {
 protected:
  TempDir folder_;
  const std::string path_ = folder_.file("fenceguard.db");
  OpenStorage storage_{path_};
};

TEST_F(EmbeddedStorage, AnObjectIsWrittenReadAndDeleted) {
  const auto claim = claim_of("accounts/42", 34);
  const auto created = storage_.put(claim, "70");
  EXPECT_EQ(created.ruling.verdict, Verdict::admitted);
  EXPECT_EQ(created.ending, ObjectEnding::created);
  const auto read = storage_.read("accounts/42");
  EXPECT_FALSE(read.ruling);
  ASSERT_TRUE(read.object);
  EXPECT_EQ(read.object->body, "70");
  EXPECT_EQ(read.object->content_type, "text/plain");
  EXPECT_EQ(read.object->etag, created.etag);
  EXPECT_EQ(read.object->size_bytes, 2);
  const auto replaced = storage_.put(claim, "71");
  EXPECT_EQ(replaced.ending, ObjectEnding::replaced);
  EXPECT_NE(replaced.etag, created.etag);
  EXPECT_EQ(storage_.remove(claim).ending, ObjectEnding::removed);
  EXPECT_FALSE(storage_.read("accounts/42").object);
  EXPECT_EQ(storage_.remove(claim).ending, ObjectEnding::not_found);
}

TEST_F(EmbeddedStorage, AReadWithoutTheBodyTellsItsSize) {
  (void)storage_.put(claim_of("a", 1), "12345");
  const auto read = storage_.read("a", {}, false);
  ASSERT_TRUE(read.object);
  EXPECT_EQ(read.object->body, "");
  EXPECT_EQ(read.object->size_bytes, 5);
}

TEST_F(EmbeddedStorage, BodiesAreKeptByteForByte) {
  std::string body;
  for (int i = 0; i < 70'000; ++i) body += static_cast<char>(i % 256);
  (void)storage_.put(claim_of("bytes", 1), body);
  (void)storage_.put(claim_of("empty", 1), "");
  EXPECT_EQ(storage_.body("bytes"), body);
  ASSERT_TRUE(storage_.read("empty").object);
  EXPECT_EQ(storage_.body("empty"), "");
}

TEST_F(EmbeddedStorage, AnETagIsNeverUsedTwiceNotEvenAfterADelete) {
  const auto claim = claim_of("a", 1);
  const auto first = storage_.put(claim, "x").etag;
  (void)storage_.remove(claim);
  EXPECT_NE(storage_.put(claim, "x").etag, first);
}

TEST_F(EmbeddedStorage, PreconditionsAreKept) {
  const auto claim = claim_of("a", 5);
  const auto ending = [&](std::optional<Precondition> if_match, std::optional<Precondition> if_none_match) {
    auto write = put_of("a", "x");
    write.if_match = std::move(if_match);
    write.if_none_match = std::move(if_none_match);
    return storage_.write(claim, write).ending;
  };
  const Precondition any{true, {}};
  EXPECT_EQ(ending(any, {}), ObjectEnding::precondition_failed);
  EXPECT_EQ(ending({}, any), ObjectEnding::created);
  EXPECT_EQ(ending({}, any), ObjectEnding::precondition_failed);
  EXPECT_EQ(ending(any, {}), ObjectEnding::replaced);
  auto etag = storage_.read("a").object->etag;
  EXPECT_EQ(ending(tags({"\"other\""}), {}), ObjectEnding::precondition_failed);
  EXPECT_EQ(ending(tags({"W/" + etag}), {}), ObjectEnding::precondition_failed);  // compared strongly
  EXPECT_EQ(ending({}, tags({"\"other\"", "W/" + etag})), ObjectEnding::precondition_failed);
  EXPECT_EQ(ending(tags({"\"other\"", etag}), {}), ObjectEnding::replaced);
  EXPECT_EQ(ending({}, tags({etag})), ObjectEnding::replaced);  // the tag is an old one by now
}

TEST_F(EmbeddedStorage, RefusedWriteKeepsTheTokenAndLeavesTheSequenceFree) {
  auto write = put_of("a", "x");
  write.if_match = tags({"\"none\""});
  const auto refused = storage_.write(claim_of("a", 34, "b").with(Sequence{7}), write);
  EXPECT_EQ(refused.ruling.verdict, Verdict::admitted);
  EXPECT_EQ(refused.ending, ObjectEnding::precondition_failed);
  EXPECT_EQ(storage_.show("a").record, fence_of(34, "b"));
  EXPECT_EQ(storage_.put(claim_of("a", 33, "a"), "stale").ruling.verdict, Verdict::stale);
  write.if_match.reset();
  const auto again = storage_.write(claim_of("a", 34, "b").with(Sequence{7}), write);
  EXPECT_EQ(again.ending, ObjectEnding::created);
  EXPECT_EQ(storage_.show("a").record->sequence, Sequence{7});
  // A delete of nothing is refused by the storage as well.
  const auto claim = claim_of("nothing", 34).with(Sequence{1});
  EXPECT_EQ(storage_.remove(claim).ending, ObjectEnding::not_found);
  EXPECT_EQ(storage_.put(claim, "x").ending, ObjectEnding::created);
}

TEST_F(EmbeddedStorage, ADuplicateWritesNothingAndAnOvertakenSequenceIsStale) {
  const auto claim = claim_of("a", 5);
  EXPECT_EQ(storage_.put(claim.with(Sequence{1}), "one").ruling.verdict, Verdict::admitted);
  EXPECT_EQ(storage_.put(claim.with(Sequence{2}), "two").ruling.verdict, Verdict::admitted);
  const auto duplicate = storage_.put(claim.with(Sequence{2}), "two again");
  EXPECT_EQ(duplicate.ruling.verdict, Verdict::duplicate);
  EXPECT_FALSE(duplicate.ending);
  EXPECT_EQ(storage_.put(claim.with(Sequence{1}), "one again").ruling.verdict, Verdict::stale);
  EXPECT_EQ(storage_.body("a"), "two");
}

TEST_F(EmbeddedStorage, ARefusedWriteChangesNoObject) {
  (void)storage_.put(claim_of("a", 5, "x"), "kept");
  EXPECT_EQ(storage_.put(claim_of("a", 4, "x"), "stale").ruling.verdict, Verdict::stale);
  EXPECT_EQ(storage_.put(claim_of("a", 5, "y"), "conflict").ruling.verdict, Verdict::conflict);
  EXPECT_EQ(storage_.remove(claim_of("a", 4, "x")).ruling.verdict, Verdict::stale);
  EXPECT_EQ(storage_.body("a"), "kept");
}

TEST_F(EmbeddedStorage, AFencedReadAdvancesFirst) {
  (void)storage_.put(claim_of("a", 5, "x"), "five");
  const auto read = storage_.read("a", claim_of("a", 6, "y"));
  ASSERT_TRUE(read.ruling);
  EXPECT_EQ(read.ruling->verdict, Verdict::admitted);
  EXPECT_EQ(read.object->body, "five");
  EXPECT_EQ(storage_.put(claim_of("a", 5, "x"), "late").ruling.verdict, Verdict::stale);
  const auto refused = storage_.read("a", claim_of("a", 5, "x"));
  EXPECT_EQ(refused.ruling->verdict, Verdict::stale);
  EXPECT_EQ(refused.ruling->highest, 6);
  EXPECT_FALSE(refused.object);
}

// As many reads of an object as there are readers, held within their answers until the end.
class HeldReaders {
 public:
  explicit HeldReaders(ObjectStore& objects) {
    std::vector<std::future<void>> held;
    for (int reader = 0; reader < 2; ++reader) {
      const auto one = std::make_shared<std::promise<void>>();
      held.push_back(one->get_future());
      objects.read({"a", {}, true}, [one, is_over = is_over_](const auto&) {
        one->set_value();
        is_over.wait();
      });
    }
    for (auto& one : held) one.wait();
  }
  ~HeldReaders() { over_.set_value(); }
  HeldReaders(const HeldReaders&) = delete;
  HeldReaders& operator=(const HeldReaders&) = delete;

 private:
  std::promise<void> over_;
  std::shared_future<void> is_over_ = over_.get_future().share();
};

// Shows: a read that raised the fence is not refused by a newer claim that came after it. How: one goes
// before the other while the readers are held within their answers, so that it cannot look later.
TEST_F(EmbeddedStorage, AFencedReadThatRaisesTheFenceIsOneStep) {
  (void)storage_.put(claim_of("a", 3), "three");
  const HeldReaders held{storage_.objects()};
  const auto answer = std::make_shared<std::promise<Outcome<ReadReport>>>();
  storage_.objects().read({"a", claim_of("a", 4), true},
                          [answer](Outcome<ReadReport> outcome) { answer->set_value(std::move(outcome)); });
  EXPECT_EQ(storage_.put(claim_of("a", 5), "five").ruling.verdict, Verdict::admitted);
  auto answered = answer->get_future();
  ASSERT_EQ(answered.wait_for(std::chrono::seconds{30}), std::future_status::ready);
  const auto read = answered.get().value_or_raise();
  EXPECT_EQ(read.ruling->verdict, Verdict::admitted);
  EXPECT_EQ(read.object->body, "three");
}

// Shows: reads that raise fences hold a bounded amount of memory until their commit; those beyond it are
// unavailable and raise nothing. How: an answer holds the committer until all are asked for, so that one
// transaction has them all.
TEST_F(EmbeddedStorage, FencedReadsOfOneTransactionHoldBoundedMemory) {
  constexpr int objects = 30;
  const auto name = [](int i) { return "large/" + std::to_string(i); };
  for (int i = 0; i < objects; ++i) (void)storage_.put(claim_of(name(i), 1), std::string(4UL << 20, 'x'));
  std::promise<void> held;
  std::promise<void> asked;
  storage_.objects().write(claim_of("a", 1), put_of("a", ""), [&](const auto&) {
    held.set_value();
    asked.get_future().wait();
  });
  held.get_future().wait();
  std::vector<std::future<Outcome<ReadReport>>> answers;
  for (int i = 0; i < objects; ++i) {
    const auto answer = std::make_shared<std::promise<Outcome<ReadReport>>>();
    answers.push_back(answer->get_future());
    storage_.objects().read({name(i), claim_of(name(i), 2), true},
                            [answer](Outcome<ReadReport> outcome) { answer->set_value(std::move(outcome)); });
  }
  asked.set_value();
  for (int i = 0; i < objects; ++i) {
    const auto outcome = answers[static_cast<std::size_t>(i)].get();
    const bool has_room = i < 16;
    EXPECT_EQ(outcome.ok(), has_room) << i;
    EXPECT_EQ(storage_.show(name(i)).highest(), has_room ? 2 : 1) << i;
    if (!outcome.ok()) EXPECT_EQ(outcome.fault().kind, FaultKind::unavailable);
  }
}

// Shows: what a newer token wrote between a fenced read's advance and its look at the object is not in its
// answer. How: as many reads as there are readers hold them within their answers, so that the fenced read,
// which is admitted at once, looks after the newer write.
TEST_F(EmbeddedStorage, AFencedReadNeverHoldsWhatANewerTokenWrote) {
  (void)storage_.put(claim_of("a", 3), "three");
  std::optional<HeldReaders> held{std::in_place, storage_.objects()};
  const auto answer = std::make_shared<std::promise<Outcome<ReadReport>>>();
  storage_.objects().read({"a", claim_of("a", 3), true},
                          [answer](Outcome<ReadReport> outcome) { answer->set_value(std::move(outcome)); });
  EXPECT_EQ(storage_.put(claim_of("a", 4), "four").ruling.verdict, Verdict::admitted);
  auto answered = answer->get_future();
  EXPECT_EQ(answered.wait_for(std::chrono::seconds{0}), std::future_status::timeout) << "a reader was free";
  held.reset();
  const auto read = answered.get().value_or_raise();
  ASSERT_TRUE(read.ruling);
  EXPECT_EQ(read.ruling->verdict, Verdict::stale);
  EXPECT_EQ(read.ruling->highest, 4);
  EXPECT_FALSE(read.object);
}

// One lock covers everything under it: the resource is a prefix of the object's path.
TEST_F(EmbeddedStorage, SeveralObjectsCanStandUnderOneResource) {
  const auto claim = claim_of("accounts/42", 5);
  EXPECT_EQ(storage_.write(claim, put_of("accounts/42/a", "a")).ending, ObjectEnding::created);
  EXPECT_EQ(storage_.write(claim, put_of("accounts/42/b", "b")).ending, ObjectEnding::created);
  EXPECT_EQ(storage_.write(claim_of("accounts/42", 4), put_of("accounts/42/b", "c")).ruling.verdict,
            Verdict::stale);
  EXPECT_EQ(storage_.body("accounts/42/b"), "b");
}

TEST_F(EmbeddedStorage, ARevokedHolderIsRefusedAndTheNextHigherTokenOpensTheFence) {
  (void)storage_.put(claim_of("a", 5, "x"), "x");
  const auto view = storage_.revoke("a");
  ASSERT_TRUE(view.record);
  EXPECT_TRUE(view.record->closed);
  EXPECT_EQ(view.record->token, Token{5});
  EXPECT_EQ(storage_.put(claim_of("a", 5, "x"), "late").ruling.verdict, Verdict::stale);
  EXPECT_EQ(storage_.advance(claim_of("a", 5, "x")).verdict, Verdict::stale);
  EXPECT_EQ(storage_.put(claim_of("a", 6, "x"), "next").ruling.verdict, Verdict::admitted);
  EXPECT_FALSE(storage_.show("a").record->closed);
}

TEST_F(EmbeddedStorage, ARevokeCutsOffALeaseThatHasNotAdvancedYet) {
  EXPECT_TRUE(storage_.revoke("a", claim_of("a", 9, "y")).record->closed);
  EXPECT_EQ(storage_.put(claim_of("a", 9, "y"), "late").ruling.verdict, Verdict::stale);
  EXPECT_EQ(storage_.put(claim_of("a", 8, "x"), "later").ruling.verdict, Verdict::stale);
  EXPECT_EQ(storage_.put(claim_of("a", 10, "z"), "next").ruling.verdict, Verdict::admitted);
  // A lease that the fence has left behind adds nothing: the present holder is cut off.
  EXPECT_EQ(storage_.revoke("a", claim_of("a", 9, "y")).record->token, Token{10});
  EXPECT_EQ(storage_.put(claim_of("a", 10, "z"), "late").ruling.verdict, Verdict::stale);
}

TEST_F(EmbeddedStorage, ARevokeOfNothingAnswersAViewWithoutRecord) {
  EXPECT_FALSE(storage_.revoke("a").record);
  EXPECT_EQ(storage_.put(claim_of("a", 1), "x").ruling.verdict, Verdict::admitted);
  EXPECT_EQ(storage_.status().resources, 1);
}

TEST_F(EmbeddedStorage, FencesAreListedByPrefixInPages) {
  const std::vector<std::string> names{"a", "b", "b/1", "b/2", "b/3", "b0", "c"};
  for (const auto& name : names) (void)storage_.advance(claim_of(name, 5));
  const auto list = [&](const std::string& prefix, std::size_t limit) {
    std::vector<std::string> found;
    FenceListing listing{prefix, "", limit};
    for (;;) {
      const auto page = storage_.list(listing);
      EXPECT_LE(page.entries.size(), limit);
      for (const auto& [resource, fence] : page.entries) found.push_back(resource.name());
      if (!page.has_more) return found;
      listing.after = found.back();
    }
  };
  for (const std::size_t limit : {1, 2, 3, 7, 100}) {
    EXPECT_EQ(list("", limit), names);
    EXPECT_EQ(list("b/", limit), (std::vector<std::string>{"b/1", "b/2", "b/3"}));
    EXPECT_EQ(list("b", limit), (std::vector<std::string>{"b", "b/1", "b/2", "b/3", "b0"}));
    EXPECT_TRUE(list("d", limit).empty());
  }
  EXPECT_EQ(storage_.list({"b/", "b/1", 1}).entries[0].resource.name(), "b/2");
}

TEST_F(EmbeddedStorage, InitMayBeRepeatedAndNeverLowers) {
  EXPECT_EQ(storage_.init(100), 100);
  EXPECT_EQ(storage_.init(50), 100);
  EXPECT_EQ(storage_.init(0), 100);
  EXPECT_EQ(storage_.status().floor, 100);
  EXPECT_EQ(storage_.status().highest, 100);
  EXPECT_EQ(storage_.put(claim_of("a", 100), "x").ruling.verdict, Verdict::stale);
  EXPECT_EQ(storage_.put(claim_of("a", 101), "x").ruling.verdict, Verdict::admitted);
  // After a restore the floor is lifted above a record as well.
  EXPECT_EQ(storage_.init(200), 200);
  EXPECT_EQ(storage_.put(claim_of("a", 101), "x").ruling.verdict, Verdict::stale);
  EXPECT_EQ(storage_.put(claim_of("a", 201), "x").ruling.verdict, Verdict::admitted);
}

TEST_F(EmbeddedStorage, ARebaseSetsAFenceByHandAndIsLogged) {
  (void)storage_.advance(claim_of("a", 1'000'000'000'000));
  (void)storage_.advance(claim_of("b", 40));
  const auto view = storage_.rebase("a", 30, "operator");
  EXPECT_EQ(view.record->token, Token{30});
  EXPECT_EQ(storage_.status().highest, 40);
  EXPECT_EQ(storage_.advance(claim_of("a", 30)).verdict, Verdict::stale);  // nobody knows who holds 30
  EXPECT_EQ(storage_.advance(claim_of("a", 31)).verdict, Verdict::admitted);
  EXPECT_EQ(query(path_,
                  "SELECT resource || ' ' || token_from || ' ' || token_to || ' ' || done_by "
                  "FROM fenceguard_rebase"),
            "a 1000000000000 30 operator");
  EXPECT_THAT(query(path_, "SELECT done_at FROM fenceguard_rebase"), HasSubstr("T"));
  (void)storage_.rebase("c", 77, "operator");  // upwards, and without a record before
  EXPECT_EQ(storage_.status().highest, 77);
  EXPECT_EQ(storage_.status().resources, 3);
}

// What is raised in the same transaction as a rebase counts for the highest token too.
TEST_F(EmbeddedStorage, ARebaseForgetsNoTokenThatWasSeenMeanwhile) {
  for (int round = 0; round < 30; ++round) {
    std::vector<std::future<void>> answers;
    const auto answer = [&answers] {
      auto promise = std::make_shared<std::promise<void>>();
      answers.push_back(promise->get_future());
      return promise;
    };
    const std::int64_t token = 1'000 + round;
    for (int i = 0; i < 3; ++i) {
      const auto name = std::to_string(round) + "/" + std::to_string(i);
      storage_.fences().advance(claim_of(name, token), [p = answer()](const auto&) { p->set_value(); });
    }
    storage_.fences().rebase({Resource{"a"}, Token{5}, "tester"},
                             [p = answer()](const auto&) { p->set_value(); });
    for (auto& each : answers) each.get();
    ASSERT_EQ(storage_.status().highest, token);
  }
}

TEST(EmbeddedStorageLimits, AJumpBeyondTheBoundIsImplausibleAndMovesNothing) {
  TempDir folder;
  auto options = initialised();
  options.jump_max = 100;
  const OpenStorage storage{folder.file("fenceguard.db"), options};
  EXPECT_EQ(storage.advance(claim_of("a", 100)).verdict, Verdict::admitted);
  EXPECT_THROW((void)storage.advance(claim_of("a", 201)), Implausible);
  EXPECT_THROW((void)storage.put(claim_of("b", 201), "x"), Implausible);
  EXPECT_THROW((void)storage.read("b", claim_of("b", 201)), Implausible);
  EXPECT_FALSE(storage.show("b").record);
  EXPECT_FALSE(storage.read("b").object);
  EXPECT_EQ(storage.status().highest, 100);
  EXPECT_EQ(storage.advance(claim_of("b", 200)).verdict, Verdict::admitted);
  EXPECT_EQ(storage.advance(claim_of("a", 300)).verdict, Verdict::admitted);
}

// Reads that wait for an advance, and compactions of several steps, are answered although the storage is
// going.
TEST(EmbeddedStorageEnd, TheDestructorAnswersEverythingThatIsStillOpen) {
  TempDir folder;
  constexpr int calls = 300;
  std::atomic<int> answered{0};
  {
    OpenStorage storage{folder.file("fenceguard.db")};
    for (int i = 0; i < calls; ++i) {
      const auto name = "r/" + std::to_string(i);
      storage.objects().read({name, claim_of(name, 5 + i), true}, [&](const auto&) { ++answered; });
      storage.fences().compact(Token{1'000}, [&](const auto&) { ++answered; });
    }
  }
  EXPECT_EQ(answered, 2 * calls);
}

// A reader in another process that was stopped keeps the log from shrinking, but does not hold up every
// commit: it is waited for once, and then not again before the log has doubled.
TEST(EmbeddedStorageReaders, AReaderThatIsStoppedDoesNotHoldUpEveryWrite) {
  TempDir folder{TempDir::Place::memory};
  const auto path = folder.file("fenceguard.db");
  const OpenStorage storage{path};
  const std::string body(1'000'000, 'x');
  ASSERT_EQ(storage.put(claim_of("a", 1), body).ending, ObjectEnding::created);
  sqlite::Database reader{path, sqlite::Database::Mode::look};
  sqlite::execute(reader.handle(), "BEGIN; SELECT count(*) FROM fenceguard_object");
  // From this length on the log is to be emptied, and a commit that waits for the reader takes 100 ms at
  // least. Without a wait it may, too, on a busy machine.
  constexpr std::uintmax_t emptied_above_bytes = 165'000'000;
  constexpr std::chrono::milliseconds wait_min{100};
  int commits = 0;
  int quick = 0;
  for (int i = 0; i < 200; ++i) {
    const auto start = BootClock::now();
    ASSERT_EQ(storage.put(claim_of("a", 1), body).ending, ObjectEnding::replaced);
    if (std::filesystem::file_size(path + "-wal") < emptied_above_bytes) continue;
    ++commits;
    if (BootClock::now() - start < wait_min) ++quick;
  }
  EXPECT_GT(commits, 20);
  EXPECT_GE(quick, 5);
  sqlite::rollback(reader.handle());
  for (int i = 0; i < 3; ++i) (void)storage.put(claim_of("a", 1), "small");
  EXPECT_EQ(storage.body("a"), "small");
}

// A damaged row is refused, and what was read beside it is as fresh as ever.
TEST(EmbeddedStorageDamage, AReaderThatMetADamagedRowGoesOnSeeingWhatIsCommitted) {
  TempDir folder;
  const auto path = folder.file("fenceguard.db");
  const OpenStorage storage{path};
  (void)storage.advance(claim_of("damaged", 5));
  (void)storage.put(claim_of("a", 5), "0");
  change(path, "UPDATE fenceguard_fence SET token = 6 WHERE resource = 'damaged'");
  for (int i = 1; i <= 20; ++i) {
    EXPECT_THROW((void)storage.list({"", "", 10}), Unavailable);
    EXPECT_THROW((void)storage.show("damaged"), Unavailable);
    ASSERT_EQ(storage.put(claim_of("a", 5), std::to_string(i)).ruling.verdict, Verdict::admitted);
    ASSERT_EQ(storage.body("a"), std::to_string(i));
  }
}

}  // namespace
}  // namespace fenceguard::test
