#include <fmt/format.h>

#include "adapters/etcd/address.hpp"
#include "adapters/etcd/client.hpp"
#include "adapters/schemes.hpp"
#include "demo/kit/account.hpp"
#include "demo/kit/client_process.hpp"
#include "demo/scenarios.hpp"
#include "demo/servers/etcd.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::demo {
namespace {

using etcd::get;
using etcd::put;

constexpr std::chrono::milliseconds ttl{60'000};
constexpr int locks_between = 10;  // that others take and give back after the snapshot
constexpr const char* locks_lane = "locks";
constexpr const char* storage_lane = "storage";
constexpr const char* balance_key = "demo/accounts/42";
constexpr const char* mark_key = "mark/accounts/42";

etcd::Client client_of(const EtcdServer& server) {
  return etcd::Client{server.url()};
}

// The etcd with the locks, and its way back.
class Locks {
 public:
  explicit Locks(Harness& harness) : harness_{harness}, server_{harness} {}

  [[nodiscard]] const EtcdServer& server() const noexcept { return server_; }

  // Saves a snapshot, then others take and give back locks.
  void save_and_grow() {
    const auto revision = server_.revision();
    server_.save_snapshot();
    note(fmt::format("revision {}: a snapshot is saved", revision), Tone::plain);
    const auto source = open_source_at(Url::parse(server_.url()));
    for (int i = 0; i < locks_between; ++i)
      if (!source->acquire(Resource{fmt::format("others/{}", i)}, {.ttl = ttl}))
        throw Unavailable("a free lock was not granted");
    note(fmt::format("others take and give back {} locks: revision {}", locks_between, server_.revision()),
         Tone::plain);
  }

  void restore() {
    before_ = server_.revision();
    server_.restore_snapshot();
    after_ = server_.revision();
    note(fmt::format("its disk is LOST at revision {}; restored from the snapshot: revision {}", before_,
                     after_),
         Tone::pause);
  }

  // The revisions before and after the restore.
  [[nodiscard]] std::int64_t before() const noexcept { return before_; }
  [[nodiscard]] std::int64_t after() const noexcept { return after_; }
  [[nodiscard]] bool went_back() const noexcept { return after_ < before_; }

 private:
  void note(std::string what, Tone tone) { harness_.note(locks_lane, std::move(what), tone); }

  Harness& harness_;
  EtcdServer server_;
  std::int64_t before_ = 0;
  std::int64_t after_ = 0;
};

// A check of one's own, as people write it: the number of the lock (the create revision of its key) goes with
// every read and write, the highest one is kept as the mark, and a lower one is refused. Sound as long as the
// numbers rise.
class CheckingClient {
 public:
  CheckingClient(Harness& harness, std::string lane, const EtcdServer& storage)
      : harness_{harness}, lane_{std::move(lane)}, storage_{client_of(storage)} {}

  [[nodiscard]] std::int64_t number() const noexcept { return number_; }

  void take(const EtcdServer& locks) {
    auto client = client_of(locks);
    const auto lease = client.grant(0, ttl).id;
    const auto answer = client.txn(
        {.compare = {etcd::is_absent("locks/accounts/42")}, .then = {put("locks/accounts/42", "", lease)}});
    if (!answer.succeeded) throw Unavailable("a free lock was not granted");
    number_ = answer.revision;
    harness_.note({lane_, "takes the lock", locks_lane, fmt::format("its key was created at {}", number_),
                   Tone::token});
  }

  bool read() {
    const auto answer = checked({get(balance_key)});
    if (answer.succeeded) base_ = number_in(answer.answers.at(1));
    harness_.note({lane_, fmt::format("reads the balance with number {}", number_), storage_lane,
                   answer.succeeded ? std::to_string(base_) : shut_out(),
                   answer.succeeded ? Tone::plain : Tone::bad});
    return answer.succeeded;
  }

  bool write(std::int64_t add) {
    const auto answer = checked({put(balance_key, std::to_string(base_ + add))});
    Event event{lane_, fmt::format("writes {} + {} = {}, number {}", base_, add, base_ + add, number_),
                storage_lane, shut_out()};
    if (answer.succeeded) {
      const bool is_lost = harness_.stored() != base_;
      event.answer = fmt::format("{} is stored", base_ + add);
      if (is_lost) event.answer += fmt::format(", and the {} there is gone", harness_.stored());
      event.tone = is_lost ? Tone::bad : Tone::plain;
      event.stored = base_ + add;
    }
    harness_.note(std::move(event));
    return answer.succeeded;
  }

 private:
  // etcd compares values byte by byte, so numbers need their zeros.
  static std::string mark_of(std::int64_t number) { return fmt::format("{:019}", number); }

  static std::int64_t number_in(const etcd::OpAnswer& answer) {
    return balance_in(answer.found.empty() ? std::nullopt : std::optional{answer.found.front().value});
  }

  etcd::TxnAnswer checked(std::vector<etcd::Op> ops) {
    ops.insert(ops.begin(), put(mark_key, mark_of(number_)));
    return storage_.txn(
        {.compare = {{etcd::Compare::Target::value, etcd::Compare::Is::less, mark_key, mark_of(number_ + 1)}},
         .then = std::move(ops)});
  }

  [[nodiscard]] std::string shut_out() const {
    return fmt::format("SHUT OUT: {} is below the mark", number_);
  }

  Harness& harness_;
  std::string lane_;
  etcd::Client storage_;
  std::int64_t number_ = 0;
  std::int64_t base_ = 0;
};

void clear_mark(const EtcdServer& storage) {
  (void)client_of(storage).txn({.compare = {}, .then = {put(mark_key, fmt::format("{:019}", 0))}});
}

Outcome without(Harness& harness, const EtcdServer& storage, Locks& locks) {
  Account balance{harness, storage.url()};
  clear_mark(storage);
  CheckingClient a{harness, "client A", storage};
  CheckingClient b{harness, "client B", storage};
  harness.restart_clock();
  locks.save_and_grow();
  a.take(locks.server());
  (void)a.read();
  locks.restore();
  b.take(locks.server());
  const bool is_shut_out = !b.read();
  clear_mark(storage);
  harness.note(storage_lane, "an operator clears the mark, so that work goes on", Tone::pause);
  const bool is_b_written = b.read() && b.write(add_b);
  const bool is_a_written = a.write(add_a);

  const auto end = balance.balance();
  return {.as_expected = locks.went_back() && b.number() < a.number() && is_shut_out && is_b_written &&
                         is_a_written && end != expected,
          .sentence = fmt::format("B's lock has number {} after A's {}: a check of one's own shuts B "
                                  "out, and then lets A in; {}",
                                  b.number(), a.number(), balance_sentence(end, expected)),
          .facts = {{"revision_before", locks.before()},
                    {"revision_after", locks.after()},
                    {"number_a", a.number()},
                    {"number_b", b.number()},
                    {"b_shut_out", is_shut_out},
                    {"balance", end},
                    {"expected", expected}}};
}

// The source is behind the fences: B lifts it above the mark that refused it, and takes the lock again.
void raise_and_take_again(Harness& harness, Client& b, const EtcdServer& locks, Token mark) {
  open_source_at(Url::parse(locks.url()))->raise(Resource{account}, mark);
  harness.note({b.lane(), fmt::format("raises the source above {}", to_string(mark)), locks_lane, "raised",
                Tone::good});
  b.give_back();
  b.take(ttl);
}

Outcome with(Harness& harness, const EtcdServer& storage, Locks& locks) {
  const auto url = locks.server().url();
  initialise_fences(harness, storage.url(), {"--source", url});
  const ClientOptions options{.storage = storage.url(), .place = "demo", .source = url};
  Fixture fixture{harness, options};
  auto& [balance, a, b] = fixture;
  locks.save_and_grow();
  a.take(ttl);
  a.read();
  locks.restore();

  b.take(ttl);
  const auto first_b = b.token();
  const auto refusal = b.try_read();
  if (refusal.verdict == "stale") raise_and_take_again(harness, b, locks.server(), Token{refusal.highest});
  const bool is_b_written = b.add(add_b);
  const auto late = a.write(add_a);
  // Its connections are those to the etcd before the restore.
  Client again{harness, "client A", options};
  const bool goes_on = b.give_back() && again.try_take(ttl) && again.add(add_a);

  const auto end = balance.balance();
  return {.as_expected = locks.went_back() && first_b < a.token() && refusal.verdict == "stale" &&
                         b.token() > a.token() && is_b_written && late.verdict == "stale" && goes_on &&
                         end == expected,
          .sentence = fmt::format("B's token {} is refused, the source is raised, B goes on with {}, and A's "
                                  "write with {} is {}: {}",
                                  to_string(first_b), b.token_text(), a.token_text(), late.verdict,
                                  balance_sentence(end, expected)),
          .facts = {{"revision_before", locks.before()},
                    {"revision_after", locks.after()},
                    {"token_a", a.token()},
                    {"first_token_b", first_b},
                    {"first_verdict_b", refusal.verdict},
                    {"token_b", b.token()},
                    {"verdict_a", late.verdict},
                    {"balance", end},
                    {"expected", expected}}};
}

Outcome run(Harness& harness, bool guarded) {
  const EtcdServer storage{harness};
  Locks locks{harness};
  return guarded ? with(harness, storage, locks) : without(harness, storage, locks);
}

}  // namespace

Scenario etcd_restore() {
  return {.name = "etcd-restore",
          .summary = "etcd is restored from a snapshot: its revision goes back, and so do the tokens",
          .opening =
              "Clients A and B share an account that holds 100; A adds 50, B adds 30. The lock is in a real "
              "etcd, and the create revision of its key is the token; the account is in another etcd. The "
              "first one is lost and comes back from a snapshot, while A is at work.",
          .lanes = {"client A", "client B", locks_lane, storage_lane},
          .run = run};
}

}  // namespace fenceguard::demo
