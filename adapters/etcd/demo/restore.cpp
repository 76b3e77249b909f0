#include <fmt/format.h>

#include "adapters/etcd/demo/account.hpp"
#include "adapters/etcd/demo/stories.hpp"
#include "adapters/etcd/token_source.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "guard/url.hpp"

namespace fenceguard::etcd::demos {
namespace {

using Tone = TaleEvent::Tone;

constexpr std::chrono::milliseconds ttl{60'000};
constexpr int locks_between = 10;  // that others take and give back after the snapshot
constexpr const char* locks_lane = "locks";
constexpr std::int64_t add_a = 50, add_b = 30, expected = 180;

// The etcd with the locks, and its way back.
class Locks {
 public:
  explicit Locks(Stage& stage) : stage_{stage}, member_{stage, "locks"} {}

  [[nodiscard]] const Member& member() const noexcept { return member_; }
  [[nodiscard]] std::int64_t revision_before() const noexcept { return before_; }
  [[nodiscard]] std::int64_t revision_after() const noexcept { return after_; }

  void save() {
    const auto revision = member_.revision();
    member_.save_snapshot();
    note(fmt::format("revision {}: a snapshot is saved", revision), Tone::plain);
  }

  void note_growth() {
    note(fmt::format("others take and give back {} locks: revision {}", locks_between, member_.revision()),
         Tone::plain);
  }

  void restore() {
    before_ = member_.revision();
    member_.restore_snapshot();
    after_ = member_.revision();
    note(fmt::format("its disk is LOST at revision {}; restored from the snapshot: revision {}", before_,
                     after_),
         Tone::pause);
  }

 private:
  void note(std::string what, Tone tone) {
    stage_.note({.who = locks_lane, .what = std::move(what), .tone = tone});
  }

  Stage& stage_;
  Member member_;
  std::int64_t before_ = 0;
  std::int64_t after_ = 0;
};

// The lock as a guide tells it: a key under a lease, and its create revision is the number.
class PlainLock {
 public:
  PlainLock(const Member& member, std::string name) : client_{member.address()}, key_{std::move(name)} {}

  // The number. Throws Unavailable if it is held.
  std::int64_t take() {
    const auto lease = client_.grant(0, ttl).id;
    const auto answer = client_.txn({.compare = {is_absent(key_)}, .then = {put(key_, "", lease)}});
    if (!answer.succeeded) throw Unavailable("a free lock was not granted");
    return answer.revision;
  }
  void give_back() { (void)client_.txn({.compare = {}, .then = {remove(key_)}}); }

 private:
  Client client_;
  std::string key_;
};

std::int64_t take_plainly(Stage& stage, const std::string& lane, const Member& locks) {
  const auto number = PlainLock{locks, "locks/accounts/42"}.take();
  stage.note({.who = lane,
              .what = "takes the lock",
              .where = locks_lane,
              .answer = fmt::format("its key was created at {}", number),
              .tone = Tone::token});
  return number;
}

TaleEnd without(Stage& stage) {
  const Member storage{stage, "storage"};
  Locks locks{stage};
  open_account(storage, 100);
  CheckedAccount a{stage, "client A", storage};
  CheckedAccount b{stage, "client B", storage};
  locks.save();
  for (int i = 0; i < locks_between; ++i) {
    PlainLock other{locks.member(), fmt::format("locks/{}", i)};
    (void)other.take();
    other.give_back();
  }
  locks.note_growth();
  const auto number_a = take_plainly(stage, "client A", locks.member());
  const auto base_a = a.read(number_a).value_or(0);
  locks.restore();
  const auto number_b = take_plainly(stage, "client B", locks.member());
  const bool is_shut_out = !b.read(number_b);
  clear_mark(storage);
  stage.note(
      {.who = storage_lane, .what = "somebody clears the mark, so that work goes on", .tone = Tone::pause});
  const auto base_b = b.read(number_b).value_or(0);
  const bool is_b_written = b.write(number_b, base_b, add_b);
  const bool is_a_written = a.write(number_a, base_a, add_a);

  const auto balance = balance_of(storage);
  TaleEnd end;
  end.facts = {{"revision_before", std::to_string(locks.revision_before())},
               {"revision_after", std::to_string(locks.revision_after())},
               {"number_a", std::to_string(number_a)},
               {"number_b", std::to_string(number_b)},
               {"b_shut_out", is_shut_out ? "1" : "0"},
               {"balance", std::to_string(balance)},
               {"expected", std::to_string(expected)}};
  end.is_as_it_must_be = locks.revision_after() < locks.revision_before() && number_b < number_a &&
                         is_shut_out && is_b_written && is_a_written && balance != expected;
  end.outcome = fmt::format(
      "B's lock has number {} after A's {}: a check of one's own shuts B out, and then lets A in; {}",
      number_b, number_a, balance_sentence(balance, expected));
  return end;
}

Claim take(Stage& stage, const std::string& lane, TokenSource& source) {
  const auto answer = source.try_acquire(Resource{account}, Holder{std::string{lane.back()}}, ttl);
  const auto* grant = std::get_if<Grant>(&answer);
  if (!grant) throw Unavailable("a free lock was not granted");
  stage.note({.who = lane,
              .what = "takes the lock",
              .where = locks_lane,
              .answer = "token " + to_string(grant->claim.token),
              .tone = Tone::token,
              .token = grant->claim.token});
  return grant->claim;
}

bool give_back(Stage& stage, const std::string& lane, TokenSource& source, const Claim& claim) {
  const bool is_released = source.release(claim) == Release::released;
  stage.note({.who = lane,
              .what = fmt::format("gives the lock back, token {}", to_string(claim.token)),
              .where = locks_lane,
              .answer = is_released ? "released" : "not held"});
  return is_released;
}

// The source is behind the fences: B lifts it above the mark that refused it, and takes the lock again.
Claim raise_and_take_again(Stage& stage, TokenSource& source, const Claim& claim, const Ruling& ruling) {
  const auto mark = Token{ruling.highest};
  source.raise(claim.resource, mark);
  stage.note({.who = "client B",
              .what = fmt::format("raises the source above {}", to_string(mark)),
              .where = locks_lane,
              .answer = "raised",
              .tone = Tone::good});
  (void)give_back(stage, "client B", source, claim);
  return take(stage, "client B", source);
}

TaleEnd with(Stage& stage) {
  const Member storage{stage, "storage"};
  Locks locks{stage};
  open_account(storage, 100);
  const auto old_source = open_source(Url::parse(locks.member().url()));
  initialise_fences(storage, old_source->draw());
  GuardedAccount a{stage, "client A", storage};
  GuardedAccount b{stage, "client B", storage};
  locks.save();
  for (int i = 0; i < locks_between; ++i) {
    const auto other = old_source->acquire(Resource{fmt::format("others/{}", i)}, {.ttl = ttl});
    if (!other) throw Unavailable("a free lock was not granted");
  }
  locks.note_growth();
  const auto claim_a = take(stage, "client A", *old_source);
  const auto base_a = a.read(claim_a).value_or(0);
  locks.restore();

  const auto source = open_source(Url::parse(locks.member().url()));
  const auto first_b = take(stage, "client B", *source);
  const bool is_refused = !b.read(first_b) && b.ruling().verdict == Verdict::stale;
  const auto claim_b = raise_and_take_again(stage, *source, first_b, b.ruling());
  const auto base_b = b.read(claim_b);
  const bool is_b_written = base_b && b.write(claim_b, *base_b, add_b) == Verdict::admitted;
  const auto late = a.write(claim_a, base_a, add_a);
  const bool is_free = give_back(stage, "client B", *source, claim_b);
  const auto again = take(stage, "client A", *source);
  const auto base = a.read(again);
  const bool goes_on = is_free && base && a.write(again, *base, add_a) == Verdict::admitted;

  const auto balance = balance_of(storage);
  TaleEnd end;
  end.facts = {{"revision_before", std::to_string(locks.revision_before())},
               {"revision_after", std::to_string(locks.revision_after())},
               {"token_a", to_string(claim_a.token)},
               {"first_token_b", to_string(first_b.token)},
               {"first_verdict_b", is_refused ? "stale" : "another"},
               {"token_b", to_string(claim_b.token)},
               {"verdict_a", to_string(late)},
               {"balance", std::to_string(balance)},
               {"expected", std::to_string(expected)}};
  end.is_as_it_must_be = locks.revision_after() < locks.revision_before() && first_b.token < claim_a.token &&
                         is_refused && claim_b.token > claim_a.token && is_b_written &&
                         late == Verdict::stale && goes_on && balance == expected;
  end.outcome = fmt::format(
      "B's token {} is refused, the source is raised, B goes on with {}, and A's write with {} is {}: {}",
      to_string(first_b.token), to_string(claim_b.token), to_string(claim_a.token), to_string(late),
      balance_sentence(balance, expected));
  return end;
}

}  // namespace

TaleEnd restore(Stage& stage, bool guarded) {
  return guarded ? with(stage) : without(stage);
}

}  // namespace fenceguard::etcd::demos
