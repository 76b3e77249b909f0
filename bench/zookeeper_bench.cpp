// What the lock and the guarded write cost over ZooKeeper, each against the bare calls that a service would
// make over the same client instead, and the lock beside kazoo's. An ensemble of three is started here, in
// temporary folders on free ports.

#include <atomic>
#include <iostream>
#include <memory>

#include "adapters/zookeeper/guard.hpp"
#include "adapters/zookeeper/token_source.hpp"
#include "bench/side_by_side.hpp"
#include "tests/zookeeper/ensemble.hpp"

namespace fenceguard::bench {
namespace {

using fenceguard::test::Ensemble;
using zookeeper::Client;
using zookeeper::Guard;
using zookeeper::Mode;
using zookeeper::Session;

constexpr int threads = 8;  // of each process that writes
constexpr int locks = 150;  // of a batch
constexpr std::chrono::seconds ttl{30};
constexpr const char* data_root = "/data";

// One lock at a time by kazoo, printed as locks in a second: PROGRAM HOSTS PATH COUNT.
constexpr const char* kazoo_script = R"(
import sys, time
from kazoo.client import KazooClient
client = KazooClient(sys.argv[1])
client.start()
lock = client.Lock(sys.argv[2], 'bench')
with lock: pass
start = time.monotonic()
for _ in range(int(sys.argv[3])):
    with lock: pass
print(int(sys.argv[3]) / (time.monotonic() - start))
client.stop()
)";

std::string hosts_of(const Ensemble& ensemble) {
  return zookeeper::address_of(Url::parse(ensemble.url())).hosts;
}

double rate_of_locks(TokenSource& source) {
  const Resource resource{"accounts/42"};
  const Holder holder = Holder::random();
  return rate(locks, [&](int) {
    auto answer = source.try_acquire(resource, holder, ttl);
    source.release(std::get<Grant>(answer).claim);
  });
}

void measure_lock(Ensemble& ensemble, const Settings& settings) {
  const std::string bare_name = "zookeeper: acquire and release";
  const std::string kazoo_name = "zookeeper: acquire and release, beside kazoo's Lock";
  const auto source = zookeeper::open_source(Url::parse(ensemble.url("/bench")));
  const int rounds = settings.quick ? 7 : 31;
  const auto ours = [&] { return rate_of_locks(*source); };
  (void)ours();
  if (settings.wants(bare_name)) {
    Session bare{zookeeper::address_of(Url::parse(ensemble.url())), ttl};
    bare.wait_until_connected();
    bare.make_path("/bare/lock");
    const auto sides = alternate(rounds, ours, [&] {
      return rate(locks, [&](int) {
        const auto made = bare.create("/bare/lock/x__lock__", "holder", Mode::ephemeral_sequential);
        (void)bare.get_children("/bare/lock");
        (void)bare.remove(made.path);
      });
    });
    print_rates(bare_name + ", against create, getChildren, delete", sides, ">= 0.9");
  }
  if (settings.wants(kazoo_name)) {
    const auto sides = alternate(rounds, ours, [&] {
      return sum_of(1, {"/usr/bin/python3", "-c", kazoo_script, hosts_of(ensemble), "/kazoo/lock",
                        std::to_string(locks)});
    });
    print_rates(kazoo_name, sides, "> 1");
  }
}

// How many watches on deleted nodes the servers have told of so far.
double deletions_told(Ensemble& ensemble) {
  double sum = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto text = ensemble.node(i).ask("mntr");
    const std::string name = "zk_sum_node_deleted_watch_count\t";
    const auto at = text.find(name);
    if (at == text.npos) throw std::runtime_error{"the servers do not count what they tell"};
    sum += std::stod(text.substr(at + name.size()));
  }
  return sum;
}

// Hands one lock on from waiter to waiter.
void measure_waiters(Ensemble& ensemble, const Settings& settings) {
  constexpr int waiters = 200;
  const std::string name = "zookeeper: clients woken per hand-over, 200 waiters";
  if (!settings.wants(name)) return;
  const auto source = zookeeper::open_source(Url::parse(ensemble.url("/herd")));
  const Resource resource{"accounts/42"};
  auto first = source->try_acquire(resource, Holder{"first"}, std::chrono::minutes{5});
  std::atomic<int> served{0};
  std::vector<std::jthread> running;
  for (int i = 0; i < waiters; ++i) {
    running.emplace_back([&] {
      const auto grant = source->wait_acquire(
          resource, Holder::random(), {.ttl = std::chrono::minutes{5}, .wait = std::chrono::minutes{5}});
      if (!grant) return;
      ++served;
      source->release(grant->claim);
    });
  }
  Session looker{zookeeper::address_of(Url::parse(ensemble.url())), ttl};
  looker.wait_until_connected();
  while (looker.get_children("/herd/locks/accounts/42").children.size() <= waiters)
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  std::this_thread::sleep_for(std::chrono::seconds{1});  // the last of them looks at the one before it
  const double before = deletions_told(ensemble);
  const Stopwatch watch;
  source->release(std::get<Grant>(first).claim);
  running.clear();
  const double seconds = watch.seconds();
  if (served != waiters) throw std::runtime_error{"not everybody was served"};
  const double told = deletions_told(ensemble) - before;
  print({name, fmt::format("{:.2f}", told / waiters), fmt::format("{:.0f} told", told),
         fmt::format("{} hand-overs", waiters), "1"});
  print({"zookeeper: one hand-over, 200 waiters", "", fmt::format("{:.2f} ms", seconds * 1e3 / waiters), "",
         "none"});
}

Claim claim_of(int process, int thread, std::int64_t token) {
  return {Resource{fmt::format("accounts/{}/{}", process, thread)}, Token{token}, Holder{"holder"}, {}};
}

// What one process does: PROGRAM --worker URL KIND COUNT. Prints writes in a second.
double work(const std::string& url, const std::string& kind, int count) {
  const int process = getpid();
  Client client{url + "/bench"};
  Guard guard{client};
  Session bare{zookeeper::address_of(Url::parse(url)), ttl};
  bare.wait_until_connected();
  const bool advances = kind.ends_with("advancing");
  const bool is_bare = kind.starts_with("bare");
  return rate_of_threads(threads, count, [&](int thread) {
    const auto data = fmt::format("{}/{}-{}", data_root, process, thread);
    const auto fence = data + "-fence";
    const auto floor = data + "-floor";
    for (const auto& path : {data, fence, floor}) (void)bare.create(path, "0");
    // The first claim makes the record.
    if (!is_bare) (void)guard.advance(claim_of(process, thread, 1'000'000));
    return [=, &guard, &bare](int n) {
      if (!is_bare) {
        const auto claim = claim_of(process, thread, 1'000'000 + (advances ? n + 1 : 0));
        if (!guard.write(claim, {zookeeper::set(data, "100")}).took_effect()) std::abort();
        return;
      }
      const auto first =
          advances ? zookeeper::set(fence, "1000000 - open holder", n) : zookeeper::check(fence, 0);
      if (!bare.multi({first, zookeeper::check(floor, 0), zookeeper::set(data, "100")}).is_ok()) std::abort();
    };
  });
}

void measure_writes(Ensemble& ensemble, const Settings& settings) {
  {
    Session session{zookeeper::address_of(Url::parse(ensemble.url())), ttl};
    session.wait_until_connected();
    session.make_path(data_root);
    session.make_path("/bench");
    (void)session.create("/bench/floor", "0");
    session.make_path("/bench/fences");
  }
  const auto count = std::to_string(settings.quick ? 150 : 500);
  for (const int processes : {1, 3}) {
    for (const std::string kind : {"equal token", "advancing"}) {
      const auto name = fmt::format("zookeeper: guarded write, {}, {} process{} of {} threads", kind,
                                    processes, processes == 1 ? "" : "es", threads);
      if (!settings.wants(name)) continue;
      const auto sides = alternate(
          settings.quick ? 3 : 15,
          [&] {
            return sum_of_workers(processes, {ensemble.url(), "ours " + kind, count});
          },
          [&] {
            return sum_of_workers(processes, {ensemble.url(), "bare " + kind, count});
          });
      print_rates(name + ", against a bare multi of the same size", sides, ">= 0.9");
    }
  }
}

}  // namespace
}  // namespace fenceguard::bench

int main(int argc, char** argv) {
  using namespace fenceguard::bench;
  if (argc == 5 && std::string{argv[1]} == "--worker") {
    std::cout << work(argv[2], argv[3], std::stoi(argv[4])) << std::endl;
    return 0;
  }
  const auto settings = read_settings(argc, argv);
  fenceguard::test::Ensemble ensemble{3};
  measure_lock(ensemble, settings);
  measure_waiters(ensemble, settings);
  measure_writes(ensemble, settings);
}
