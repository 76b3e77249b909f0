// What a lane keeps in the file beside its fences.

#include "guard/store/lane_state.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>

#include "adapters/sqlite/file/schema.hpp"
#include "guard/store/pending_fencing.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

class KeptLane : public testing::Test {
 protected:
  using LastStop = LaneState::LastStop;
  static constexpr auto upstream = "http://upstream";

  // Each by a process of its own.
  void mark_open() {
    const OpenStorage storage{path_};
    (void)wait_for<bool>([&](Done<bool> done) { storage->lane_state()->mark_open(std::move(done)); });
  }
  void mark_closed() {
    const OpenStorage storage{path_};
    (void)wait_for<bool>(
        [&](Done<bool> done) { storage->lane_state()->mark_closed(upstream, std::move(done)); });
  }
  [[nodiscard]] LastStop last_stop(const std::string& in_front_of = upstream) {
    return OpenStorage {
      path_
      } -> lane_state()->last_stop(in_front_of);
  }
  static Ruling record(const OpenStorage& storage, const Claim& claim) {
    return wait_for<Ruling>(
        [&](Done<Ruling> done) { storage->lane_state()->record(claim, std::move(done)); });
  }

  TempDir folder_;
  std::string path_ = folder_.file("state.db");
};

TEST_F(KeptLane, HowTheLastProcessEndedIsThereForTheNext) {
  EXPECT_EQ(last_stop(), LastStop::none);
  mark_open();
  EXPECT_EQ(last_stop(), LastStop::unclean);
  mark_closed();
  EXPECT_EQ(last_stop(), LastStop::clean);
  EXPECT_EQ(last_stop(), LastStop::clean) << "looking changes nothing";
  EXPECT_EQ(last_stop("http://other"), LastStop::unproven) << "another guard may have been in front of it";
}

TEST_F(KeptLane, AStateThatIsNotInitialisedWasNeverServedAndRecordsNothing) {
  const OpenStorage storage{path_, StorageOptions{}};
  EXPECT_EQ(storage->lane_state()->last_stop(upstream), LastStop::none);
  EXPECT_THROW((void)record(storage, claim_of("a", 34).with(Sequence{1})), Unavailable);
}

// Each way in which a state comes back that is older than what was forwarded since.
TEST_F(KeptLane, AStateThatIsNotTheOneThatWasClosedIsUnproven) {
  const std::string seal = path_ + "-closed";
  const auto copy = [](const std::string& from, const std::string& to) {
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
  };
  mark_open();
  mark_closed();
  copy(path_, folder_.file("old"));
  copy(seal, folder_.file("old-seal"));

  mark_open();  // killed here
  copy(folder_.file("old"), path_);
  EXPECT_EQ(last_stop(), LastStop::unproven) << "the file alone";
  copy(folder_.file("old-seal"), seal);
  EXPECT_EQ(last_stop(), LastStop::unproven) << "the whole folder, into new files";

  mark_closed();
  copy(folder_.file("old"), path_);
  EXPECT_EQ(last_stop(), LastStop::unproven) << "over one that was closed since";
  copy(folder_.file("old-seal"), seal);
  EXPECT_EQ(last_stop(), LastStop::unproven) << "both, into the very files";

  mark_closed();
  copy(path_, folder_.file("moved.db"));
  copy(seal, folder_.file("moved.db-closed"));
  const OpenStorage elsewhere{folder_.file("moved.db")};
  EXPECT_EQ(elsewhere->lane_state()->last_stop(upstream), LastStop::unproven) << "a copy beside it";
  EXPECT_EQ(last_stop(), LastStop::clean) << "the one that was copied";
}

// Until the file system's clock, which ticks every few ms, has moved on.
void move_away_and_back(const std::string& path) {
  const auto last_change = [&path] {
    struct stat found {};
    EXPECT_EQ(stat(path.c_str(), &found), 0);
    return std::pair{found.st_ctim.tv_sec, found.st_ctim.tv_nsec};
  };
  const auto before = last_change();
  do {
    std::filesystem::rename(path, path + ".away");
    std::filesystem::rename(path + ".away", path);
  } while (last_change() == before);
}

TEST_F(KeptLane, AFolderThatIsPutBackAfterAGuardWorkedOnACopyIsUnproven) {
  namespace fs = std::filesystem;
  const std::string folder = folder_.file("st");
  fs::create_directory(folder);
  path_ = folder + "/state.db";
  mark_open();
  mark_closed();
  EXPECT_EQ(last_stop(), LastStop::clean) << "an ordinary restart";

  move_away_and_back(folder);
  fs::rename(folder, folder_.file("st.old"));
  fs::copy(folder_.file("st.old"), folder, fs::copy_options::recursive);
  mark_open();  // killed here
  fs::rename(folder, folder_.file("st.failed"));
  fs::rename(folder_.file("st.old"), folder);
  EXPECT_EQ(last_stop(), LastStop::unproven);
  EXPECT_EQ(last_stop(), LastStop::unproven) << "also after a start that came to nothing";

  mark_closed();
  EXPECT_EQ(last_stop(), LastStop::clean) << "the next one that is closed";
}

TEST_F(KeptLane, ASealThatIsPutBackIsUnproven) {
  mark_open();
  mark_closed();
  move_away_and_back(path_ + "-closed");
  EXPECT_EQ(last_stop(), LastStop::unproven);
}

TEST_F(KeptLane, WhatIsSetByHandMakesTheLastStopUnproven) {
  const auto init = [](const OpenStorage& storage) {
    (void)wait_for<std::int64_t>(
        [&](Done<std::int64_t> done) { storage->fences().init(40, std::move(done)); });
  };
  const auto rebase = [](const OpenStorage& storage) {
    const FenceStore::Rebase rebase{Resource{"a"}, Token{7}, "somebody"};
    (void)wait_for<FenceView>(
        [&](Done<FenceView> done) { storage->fences().rebase(rebase, std::move(done)); });
  };
  const auto change_depth = [](const OpenStorage& storage) { (void)storage->depth_record()->change(2); };
  for (const auto& by_hand :
       std::vector<std::function<void(const OpenStorage&)>>{init, rebase, change_depth}) {
    mark_open();
    by_hand(OpenStorage{path_});
    EXPECT_EQ(last_stop(), LastStop::unclean);
    mark_closed();
    by_hand(OpenStorage{path_});
    EXPECT_EQ(last_stop(), LastStop::unproven);
  }
}

TEST_F(KeptLane, AStateThatAnOlderVersionClosedIsUnproven) {
  mark_open();
  mark_closed();
  // With the checksum of 0, as in the file that tests/upgrade keeps.
  change(path_, fmt::format("UPDATE fenceguard_lane SET is_open = 0, checksum = {}",
                            sqlite::Checksum{}.add(std::int64_t{0}).value()));
  EXPECT_EQ(last_stop(), LastStop::unproven);
}

TEST_F(KeptLane, ADamagedMarkIsNotBelieved) {
  mark_open();
  for (const char* number : {"0", "3"}) {
    change(path_, std::string{"UPDATE fenceguard_lane SET is_open = "} + number);
    EXPECT_THROW((void)last_stop(), Unavailable) << number;
  }
}

TEST_F(KeptLane, ASequenceIsRecordedUnderItsTokenAndJudgedFirst) {
  {
    const OpenStorage storage{path_};
    (void)storage.advance(claim_of("a", 34));
    EXPECT_EQ(record(storage, claim_of("a", 34).with(Sequence{7})).verdict, Verdict::admitted);
    EXPECT_EQ(record(storage, claim_of("a", 34).with(Sequence{7})).verdict, Verdict::duplicate);
    EXPECT_EQ(record(storage, claim_of("a", 34).with(Sequence{6})).verdict, Verdict::stale);
    EXPECT_EQ(record(storage, claim_of("a", 33).with(Sequence{8})).verdict, Verdict::stale);
  }
  const OpenStorage storage{path_};
  EXPECT_EQ(storage.show("a").record->sequence, Sequence{7});
}

TEST_F(KeptLane, AStorageThatIsOnlyLookedAtKeepsNone) {
  { const OpenStorage made{path_}; }
  StorageOptions options;
  options.mode = StorageOptions::Mode::inspect;
  const OpenStorage storage{path_, options};
  EXPECT_EQ(storage->lane_state(), nullptr);
}

class PendingFencingTest : public KeptLane {
 protected:
  static PendingFencing& fencing(const OpenStorage& storage) {
    return dynamic_cast<PendingFencing&>(*storage->lane_state());
  }
  static PendingFencing::RaiseResult raise(const OpenStorage& storage, const Claim& claim) {
    return wait_for<PendingFencing::RaiseResult>(
        [&](Done<PendingFencing::RaiseResult> done) { fencing(storage).raise(claim, std::move(done)); });
  }
  static std::int64_t pending(const OpenStorage& storage) {
    return wait_for<std::int64_t>(
        [&](Done<std::int64_t> done) { fencing(storage).pending(Resource{"a"}, std::move(done)); });
  }
  static std::int64_t revoke(const OpenStorage& storage) {
    return wait_for<PendingFencing::CloseResult>([&](Done<PendingFencing::CloseResult> done) {
             fencing(storage).revoke(Resource{"a"}, {}, std::move(done));
           })
        .pending;
  }
  static PendingFencing::CloseResult finish(const OpenStorage& storage, const Claim& claim) {
    return wait_for<PendingFencing::CloseResult>(
        [&](Done<PendingFencing::CloseResult> done) { fencing(storage).finish(claim, std::move(done)); });
  }
  static bool settle(const OpenStorage& storage, std::int64_t token) {
    return wait_for<bool>(
        [&](Done<bool> done) { fencing(storage).settle(Resource{"a"}, Token{token}, std::move(done)); });
  }
  static Claim of(std::int64_t token, const std::string& holder) {
    return {Resource{"a"}, Token{token}, Holder{holder}, std::nullopt};
  }
};

TEST_F(PendingFencingTest, IsPendingFromRaiseOverAnotherHolderUntilSettled) {
  {
    const OpenStorage storage{path_};
    EXPECT_EQ(raise(storage, of(34, "x")).pending, 0) << "there was nobody";
    EXPECT_EQ(raise(storage, of(35, "x")).pending, 0) << "the same holder";
    EXPECT_EQ(raise(storage, of(36, "y")).pending, 35);
  }
  const OpenStorage storage{path_};
  EXPECT_EQ(pending(storage), 35) << "the next process finds it";
  EXPECT_EQ(raise(storage, of(36, "y")).pending, 35) << "an equal claim too";
  EXPECT_EQ(raise(storage, of(37, "z")).pending, 35) << "the holder in between was not let in";
  EXPECT_FALSE(settle(storage, 34));
  EXPECT_EQ(pending(storage), 35);
  EXPECT_TRUE(settle(storage, 35));
  EXPECT_EQ(pending(storage), 0);
  EXPECT_EQ(raise(storage, of(38, "x")).pending, 37);
}

TEST_F(PendingFencingTest, TwoHoldersThatSayNoNameAreTwo) {
  const OpenStorage storage{path_};
  (void)raise(storage, of(34, ""));
  EXPECT_EQ(raise(storage, of(35, "")).pending, 34);
}

TEST_F(PendingFencingTest, RefusedClaimLeavesNothingPending) {
  const OpenStorage storage{path_};
  (void)raise(storage, of(34, "x"));
  for (const auto& claim : {of(33, "y"), of(34, "y")}) {
    const auto raised = raise(storage, claim);
    EXPECT_NE(raised.ruling.verdict, Verdict::admitted);
    EXPECT_EQ(raised.pending, 0);
  }
}

TEST_F(PendingFencingTest, FinishedHolderIsNotPendingAndRevokedOneIs) {
  const OpenStorage storage{path_};
  (void)raise(storage, of(34, "x"));
  EXPECT_FALSE(finish(storage, of(34, "y")).view.record->closed) << "another holder";
  EXPECT_FALSE(finish(storage, of(33, "x")).view.record->closed) << "late";
  EXPECT_TRUE(finish(storage, of(34, "x")).view.record->closed);
  EXPECT_EQ(revoke(storage), 0) << "it was finished before";
  EXPECT_EQ(raise(storage, of(35, "y")).pending, 0);
  EXPECT_EQ(revoke(storage), 35);
  EXPECT_EQ(raise(storage, of(36, "z")).pending, 35);
}

TEST_F(PendingFencingTest, RevokedAndSettledHolderIsNotPending) {
  const OpenStorage storage{path_};
  (void)raise(storage, of(34, "x"));
  EXPECT_EQ(revoke(storage), 34);
  EXPECT_TRUE(settle(storage, 34));
  EXPECT_EQ(raise(storage, of(35, "y")).pending, 0);
}

// By a guard without methods, or a command: who was there may live on.
TEST_F(PendingFencingTest, HolderRevokedWithoutCutOffIsPendingForTheNext) {
  {
    const OpenStorage storage{path_};
    (void)raise(storage, of(34, "x"));
    EXPECT_TRUE(storage.revoke("a").record->closed);
  }
  const OpenStorage storage{path_};
  EXPECT_EQ(raise(storage, of(35, "y")).pending, 34);
}

TEST_F(PendingFencingTest, NextProcessFindsThatAHolderFinished) {
  {
    const OpenStorage storage{path_};
    (void)raise(storage, of(34, "x"));
    (void)finish(storage, of(34, "x"));
  }
  const OpenStorage storage{path_};
  EXPECT_TRUE(storage.show("a").record->finished);
  EXPECT_EQ(raise(storage, of(35, "y")).pending, 0);
}

TEST_F(PendingFencingTest, DamagedRowIsNotBelieved) {
  {
    const OpenStorage storage{path_};
    (void)raise(storage, of(34, "x"));
    (void)raise(storage, of(35, "y"));
  }
  change(path_, "UPDATE fenceguard_cut SET token = 1");
  const OpenStorage storage{path_};
  EXPECT_THROW((void)pending(storage), Unavailable);
  EXPECT_THROW((void)raise(storage, of(36, "z")), Unavailable);
}

}  // namespace
}  // namespace fenceguard::test
