// Durable advances on distinct resources from 64 concurrent callers through the embedded storage, against the
// same rows committed one at a time by plain SQLite in the same settings (WAL, synchronous=FULL, the same
// table, the same statement, the same checkpoint interval). Callers are threads that wait, or asynchronous
// calls that are outstanding. New resources in the order of their names, and scattered over a billion of
// them.
//
// The ratio depends on what a sync costs, so it is also measured with a sync that takes a fixed time on both
// sides (slow_disk.hpp).

#include <fmt/format.h>
#include <sqlite3.h>
#include <time.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "adapters/sqlite/storage.hpp"
#include "bench/measure.hpp"
#include "bench/slow_disk.hpp"

namespace fenceguard::bench {
namespace {

constexpr int callers = 64;

enum class Order { consecutive, scattered };

// The number of the n-th resource.
std::uint64_t resource_number(Order order, std::uint64_t n) {
  // 387420489 is odd and no multiple of 5, so this visits every number below a billion once.
  return order == Order::consecutive ? n : n * 387'420'489 % 1'000'000'000;
}

Claim claim_of(Order order, std::uint64_t n) {
  return {Resource{resource_name(resource_number(order, n))}, Token{static_cast<std::int64_t>(n + 1)},
          Holder{holder_id(n)}, std::nullopt};
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("advance_bench: " + what);
}

// One transaction for each row, as a service would write it that has no group commit.
class PlainSqlite {
 public:
  PlainSqlite(const std::string& path, Order order) : order_{order} {
    if (sqlite3_open(path.c_str(), &connection_) != SQLITE_OK) fail("cannot open " + path);
    run("PRAGMA journal_mode = WAL");
    run("PRAGMA synchronous = FULL");
    run("PRAGMA wal_autocheckpoint = 4000");
    run("CREATE TABLE fenceguard_fence (resource TEXT PRIMARY KEY, token INTEGER NOT NULL, holder TEXT NOT "
        "NULL, sequence INTEGER, closed INTEGER NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID");
    const char* sql = "INSERT OR REPLACE INTO fenceguard_fence VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    if (sqlite3_prepare_v2(connection_, sql, -1, &store_, nullptr) != SQLITE_OK) fail("cannot prepare");
  }
  ~PlainSqlite() {
    sqlite3_finalize(store_);
    sqlite3_close(connection_);
  }
  PlainSqlite(const PlainSqlite&) = delete;
  PlainSqlite& operator=(const PlainSqlite&) = delete;

  // Advances per second.
  [[nodiscard]] double measure(double seconds) {
    const Stopwatch watch;
    const std::uint64_t before = next_;
    while (watch.seconds() < seconds) commit_one(claim_of(order_, next_++));
    return static_cast<double>(next_ - before) / watch.seconds();
  }

 private:
  void run(const char* sql) {
    if (sqlite3_exec(connection_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail(sql);
  }
  // Autocommit: the statement is its own transaction, which is the cheapest form there is.
  void commit_one(const Claim& claim) {
    const std::string& name = claim.resource.name();
    const std::string& holder = claim.holder.id();
    sqlite3_bind_text(store_, 1, name.data(), static_cast<int>(name.size()), SQLITE_STATIC);
    sqlite3_bind_int64(store_, 2, claim.token.value());
    sqlite3_bind_text(store_, 3, holder.data(), static_cast<int>(holder.size()), SQLITE_STATIC);
    sqlite3_bind_null(store_, 4);
    sqlite3_bind_int64(store_, 5, 0);
    sqlite3_bind_int64(store_, 6, claim.token.value());
    if (sqlite3_step(store_) != SQLITE_DONE) fail("an insert failed");
    sqlite3_reset(store_);
  }

  const Order order_;
  sqlite3* connection_ = nullptr;
  sqlite3_stmt* store_ = nullptr;
  std::uint64_t next_ = 0;
};

class Guarded {
 public:
  Guarded(const std::string& path, Order order) : order_{order} {
    StorageOptions options;
    options.initialise = true;
    storage_ = sqlite::open_storage(path, options);
  }

  // Advances per second from as many threads, each waiting for its answer.
  [[nodiscard]] double measure_threads(int count, double seconds) {
    StoreGuard guard{storage_->fences()};
    const Stopwatch watch;
    std::atomic<std::uint64_t> done{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&] {
        std::uint64_t own = 0;
        for (; watch.seconds() < seconds; ++own) require_admitted(guard.advance(next_claim()));
        done += own;
      });
    }
    for (auto& thread : threads) thread.join();
    return static_cast<double>(done) / watch.seconds();
  }

  // Advances per second with 64 calls outstanding, the next one asked where an answer arrives.
  [[nodiscard]] double measure_outstanding(double seconds) {
    Chains chains{storage_->fences(), *this, seconds};
    return chains.run();
  }

 private:
  class Chains {
   public:
    Chains(FenceStore& store, Guarded& guarded, double seconds)
        : store_{store}, guarded_{guarded}, seconds_{seconds} {}

    [[nodiscard]] double run() {
      for (int i = 0; i < callers; ++i) ask();
      std::unique_lock lock{mutex_};
      all_over_.wait(lock, [&] { return over_ == callers; });
      return static_cast<double>(done_) / watch_.seconds();
    }

   private:
    void ask() {
      store_.advance(guarded_.next_claim(), [this](Outcome<Ruling> outcome) {
        require_admitted(std::move(outcome).value_or_raise());
        ++done_;
        if (watch_.seconds() < seconds_) return ask();
        const std::scoped_lock lock{mutex_};
        if (++over_ == callers) all_over_.notify_one();
      });
    }

    FenceStore& store_;
    Guarded& guarded_;
    const double seconds_;
    const Stopwatch watch_;
    std::atomic<std::uint64_t> done_{0};
    std::mutex mutex_;
    std::condition_variable all_over_;
    int over_ = 0;
  };

  [[nodiscard]] Claim next_claim() { return claim_of(order_, next_.fetch_add(1)); }
  static void require_admitted(const Ruling& ruling) {
    if (ruling.verdict != Verdict::admitted) fail("an advance to a new token was not admitted");
  }

  const Order order_;
  std::unique_ptr<Storage> storage_;
  std::atomic<std::uint64_t> next_{0};
};

struct Disk {
  std::string name;
  std::chrono::microseconds sync;  // 0: the real one
};

void measure(const Settings& settings, const Disk& disk, Order order) {
  set_sync_time(std::chrono::microseconds{0});
  const TemporaryFolder folder{settings.folder};
  Guarded guarded{folder.file("guarded.db"), order};
  PlainSqlite plain{folder.file("plain.db"), order};
  set_sync_time(disk.sync);

  const int rounds = settings.quick ? 3 : 7;
  const double seconds = settings.quick ? 0.5 : 2;
  const std::string where =
      fmt::format("{}, {}", order == Order::consecutive ? "in order" : "scattered", disk.name);
  const auto line = [&](const std::string& how, const char* target, const std::function<double()>& ours) {
    const auto name = fmt::format("durable advances, {}, {}", how, where);
    if (!settings.wants(name)) return;
    const Sides sides = alternate(rounds, ours, [&] { return plain.measure(seconds); });
    print({name, fmt::format("{:.1f}", sides.ratio.median), fmt::format("{:.0f}/s", sides.ours),
           fmt::format("{:.0f}/s", sides.other), target, sides});
  };
  // One at a time, a sync of 1 ms leaves far more to share than one of 30 us, and consecutive resources more
  // than scattered.
  const char* const target = order == Order::scattered                   ? ">= 5"
                             : disk.sync >= std::chrono::milliseconds{1} ? ">= 25"
                                                                         : ">= 12";
  line("64 threads", target, [&] { return guarded.measure_threads(callers, seconds); });
  line("64 outstanding calls", target, [&] { return guarded.measure_outstanding(seconds); });
  line("1 thread", "none", [&] { return guarded.measure_threads(1, seconds); });
}

}  // namespace
}  // namespace fenceguard::bench

int main(int argc, char** argv) {
  using namespace fenceguard::bench;
  using std::chrono::microseconds;
  const Settings settings = read_settings(argc, argv);
  install_slow_disk();
  for (const Disk& disk :
       {Disk{"real disk", microseconds{0}}, Disk{"sync modelled as 1 ms", microseconds{1000}},
        Disk{"sync modelled as 40 us", microseconds{40}}}) {
    for (const Order order : {Order::consecutive, Order::scattered}) measure(settings, disk, order);
  }
}
